package config

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	tableDaemon   = "daemon"
	tableSecurity = "security"
	tableLedger   = "ledger"
	tableDefaults = "defaults"
	tableServers  = "servers"
)

// checker turns a document into a Config and collects every problem on the way.
type checker struct {
	doc       *document
	env       Environment
	configDir string
	problems  Errors
}

func newChecker(doc *document, env Environment, configDir string) *checker {
	return &checker{doc: doc, env: env, configDir: configDir}
}

func (c *checker) complain(at span, f *flaw) {
	c.problems = append(c.problems, c.doc.problem(at.start, f))
}

// complainAbout says which key the flaw is about.
func (c *checker) complainAbout(path string, at span, f *flaw) {
	c.complain(at, &flaw{message: path + ": " + f.message, hint: f.hint})
}

func (c *checker) config() *Config {
	root := c.doc.root
	tables := []string{tableDaemon, tableSecurity, tableLedger, tableDefaults, tableServers}
	for _, n := range root.children {
		if !slices.Contains(tables, n.name) {
			c.unknownKey(n, root, "", tables)
		}
	}
	cfg := &Config{
		Daemon:   withDefaults(daemonOptions()),
		Security: withDefaults(securityOptions()),
		Ledger:   withDefaults(ledgerOptions()),
		Servers:  make(map[string]Server),
	}
	if n := c.table(root, tableDaemon); n != nil {
		readTable(c, n, tableDaemon, &cfg.Daemon, daemonOptions())
	}
	if n := c.table(root, tableSecurity); n != nil {
		readTable(c, n, tableSecurity, &cfg.Security, securityOptions())
	}
	if n := c.table(root, tableLedger); n != nil {
		readTable(c, n, tableLedger, &cfg.Ledger, ledgerOptions())
	}
	base := c.defaults()
	if n := c.table(root, tableServers); n != nil {
		c.servers(n, base, cfg.Servers)
	}
	return cfg
}

// table is the child of that name if it is a table. If it is something else, that is a problem.
func (c *checker) table(parent *node, name string) *node {
	n := parent.child(name)
	if n == nil || !c.isTable(n, keyText(name)) {
		return nil
	}
	return n
}

func (c *checker) isTable(n *node, path string) bool {
	if _, ok := n.data.(map[string]any); ok {
		return true
	}
	f := flawf("must be a table, not %s", typeName(n.data))
	if _, list := n.data.([]map[string]any); list {
		f = f.withHint("write its header as [%s]", path)
	}
	c.complainAbout(path, n.key, f)
	return false
}

// unknownKey complains about a key that does not belong where it stands, and looks for what was meant.
func (c *checker) unknownKey(n, parent *node, table string, known []string) {
	where := ""
	if table != "" {
		where = " in [" + table + "]"
	}
	for _, name := range known {
		if other := parent.child(name); other != nil && strings.EqualFold(name, n.name) {
			line, _ := c.doc.position(other.key.start)
			c.complain(n.key, flawf("%s repeats %s of line %d in another case%s", keyText(n.name), name, line, where).
				withHint("keys are written in lower case"))
			return
		}
	}
	f := flawf("unknown key %s%s", keyText(n.name), where)
	if f.hint = homeOf(n.name); f.hint == "" {
		f.hint = didYouMean(n.name, known)
	}
	_, isTable := n.data.(map[string]any)
	switch {
	case f.hint != "":
	case table == "":
		f.hint = "there are [daemon], [security], [ledger], [defaults] and [servers.NAME]"
	case isTable && strings.HasPrefix(table, tableServers):
		f.hint = "if the dot belongs to the server's name, put the name in quotes"
	}
	c.complain(n.key, f)
}

// homeOf names the tables that a key belongs in, if there are any.
func homeOf(name string) string {
	var homes []string
	if findOption(daemonOptions(), name) != nil {
		homes = append(homes, "[daemon]")
	}
	if findOption(securityOptions(), name) != nil {
		homes = append(homes, "[security]")
	}
	if findOption(ledgerOptions(), name) != nil {
		homes = append(homes, "[ledger]")
	}
	if o := findOption(serverOptions(), name); o != nil {
		homes = append(homes, "[servers.NAME]")
		if !o.own {
			homes = append(homes, "[defaults]")
		}
	}
	if len(homes) == 0 {
		return ""
	}
	return "it belongs in " + strings.Join(homes, " or ")
}

// settings are the keys that were set in a table (and in [defaults] before it), with the full path of each.
type settings map[string]setting

type setting struct {
	node *node
	path string
}

// readTable reads the keys of one table into target.
func readTable[T any](c *checker, n *node, path string, target *T, options []option[T]) settings {
	set := make(settings)
	for _, child := range n.children {
		o := findOption(options, child.name)
		if o == nil {
			c.unknownKey(child, n, path, optionNames(options))
			continue
		}
		childPath := path + "." + o.name
		ok := false
		switch field := o.field(target).(type) {
		case *[]string:
			*field, ok = c.stringList(child, childPath, o.element)
		case *map[string]string:
			*field, ok = c.variables(child, childPath)
		case *map[string]Tool:
			*field, ok = c.tools(child, childPath)
		default:
			f := o.set(target, child.data)
			if ok = f == nil; !ok {
				c.complainAbout(childPath, child.at(), f)
			}
		}
		if ok {
			set[o.name] = setting{child, childPath}
		}
	}
	return set
}

// stringList reads an array of strings. With an element function it is a set, in which nothing may stand twice.
func (c *checker) stringList(n *node, path string, element func(string) (string, *flaw)) ([]string, bool) {
	items, ok := n.data.([]any)
	if !ok {
		f := flawf("must be an array of strings, not %s", typeName(n.data))
		if _, single := n.data.(string); single {
			f = f.withHint(`put it in brackets: ["…"]`)
		}
		c.complainAbout(path, n.at(), f)
		return nil, false
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		at := n.item(i).at()
		s, isString := item.(string)
		if !isString {
			c.complainAbout(path, at, flawf("every element must be a string, not %s", typeName(item)).
				withHint("put it in quotes"))
		}
		if isString && element != nil {
			normal, f := element(s)
			if f == nil && slices.Contains(list, normal) {
				f = flawf("%q is in the list twice", s)
			}
			if f != nil {
				c.complainAbout(path, at, f)
			}
			s = normal
		}
		list = append(list, s) // a bad element too: the others keep their numbers, and so their places
	}
	return list, true
}

// variables reads the table of environment variables, leaving out the bad ones. Values are never quoted in a problem.
func (c *checker) variables(n *node, path string) (map[string]string, bool) {
	if _, table := n.data.(map[string]any); !table {
		c.complainAbout(path, n.at(), flawf("must be a table of strings, not %s", typeName(n.data)).
			withHint(`write it as { NAME = "value" }`))
		return nil, false
	}
	variables := make(map[string]string, len(n.children))
	lower := make(map[string]string)
	for _, child := range n.children {
		childPath := path + "." + keyText(child.name)
		if child.name == "" || strings.ContainsAny(child.name, "=\x00") {
			c.complainAbout(childPath, child.key, flawf("a variable's name is not empty and holds no \"=\" or NUL"))
			continue
		}
		if reserved := strings.ToUpper(child.name); reserved == "MCPD_DAEMON" || reserved == "MCPD_CHILD" {
			c.complainAbout(childPath, child.key, flawf("is a name that mcpd itself sets, to find a server's processes again").
				withHint("give the variable another name"))
			continue
		}
		if other, twice := lower[strings.ToLower(child.name)]; twice && c.env.os() == "windows" {
			c.complainAbout(childPath, child.key, flawf("repeats %s in another case, which is the same variable on Windows", other))
			continue
		}
		lower[strings.ToLower(child.name)] = child.name
		value, isString := child.data.(string)
		if !isString {
			c.complainAbout(childPath, child.at(), flawf("must be a string, not %s", typeName(child.data)).
				withHint("put the value in quotes"))
			continue
		}
		variables[child.name] = value
	}
	return variables, true
}

// baseline is what [defaults] gives to every server.
type baseline struct {
	server Server // Env holds the expanded variables
	set    settings
}

func (c *checker) defaults() baseline {
	b := baseline{server: withDefaults(serverOptions())}
	n := c.table(c.doc.root, tableDefaults)
	if n == nil {
		return b
	}
	shared := slices.DeleteFunc(serverOptions(), func(o option[Server]) bool { return o.own })
	b.set = readTable(c, n, tableDefaults, &b.server, shared)
	checked := b.server // what follows from one key here must not bind a server that sets the other
	c.settleOrders(&checked, b.set, nil)
	if s, ok := b.set["env"]; ok {
		b.server.Env = c.expandVariables(s, b.server.Raw.Env, true)
	}
	return b
}

func (c *checker) servers(n *node, base baseline, into map[string]Server) {
	lower := make(map[string]*node)
	for _, child := range n.children {
		path := tableServers + "." + keyText(child.name)
		if f := checkServerName(child.name); f != nil {
			c.complain(child.key, f)
			continue
		}
		if other := lower[strings.ToLower(child.name)]; other != nil {
			line, _ := c.doc.position(other.key.start)
			c.complain(child.key, flawf("the server %q differs from %q of line %d only in upper and lower case",
				child.name, other.name, line).withHint("give it another name"))
			continue
		}
		lower[strings.ToLower(child.name)] = child
		if c.isTable(child, path) {
			into[child.name] = c.server(child, path, base)
		}
	}
}

func (c *checker) server(n *node, path string, base baseline) Server {
	s := base.server
	inherited := s.Raw.Env
	s.Raw.Env = nil
	set := readTable(c, n, path, &s, serverOptions())
	s.Name = n.name
	c.settleOrders(&s, set, base.set)

	lookups := !s.Disabled
	s.Command, s.Args, s.Cwd = s.Raw.Command, s.Raw.Args, s.Raw.Cwd
	if at, ok := set["command"]; ok {
		s.Command, ok = c.expandString(at.path, at.node, s.Raw.Command, lookups)
		if f := checkCommand(c.env.os(), s.Raw.Command, s.Command); ok && f != nil {
			c.complainAbout(at.path, at.node.at(), f)
		}
	} else if n.child("command") == nil && !n.hasNear("command") {
		c.complain(n.key, flawf("the server %q has no command", n.name).
			withHint(`add command = "…", the program to start`))
	}
	if at, ok := set["args"]; ok {
		s.Args = make([]string, len(s.Raw.Args))
		for i, arg := range s.Raw.Args {
			s.Args[i], _ = c.expandString(at.path, at.node.item(i), arg, lookups)
		}
	}
	if at, ok := set["cwd"]; ok {
		s.Cwd, ok = c.expandString(at.path, at.node, s.Raw.Cwd, lookups)
		if ok && lookups && !isAbsolute(c.env.os(), s.Cwd) {
			c.complainAbout(at.path, at.node.at(), flawf("the folder is not absolute").
				withHint("start it with / or ${home} or ${config_dir}"))
		}
	} else if s.Cwd = c.env.Home; s.Cwd == "" {
		// Without a home folder (some services have none) it is the daemon's own folder.
		s.Raw.Cwd = ""
	}

	s.Env = maps.Clone(base.server.Env)
	if at, ok := set["env"]; ok {
		s.Env = c.merge(s.Env, c.expandVariables(at, s.Raw.Env, lookups))
	}
	s.Raw.Env = c.merge(inherited, s.Raw.Env)
	if !lookups {
		s.Env = s.Raw.Env
	}
	return s
}

// merge is a copy of a with b laid over it, nil if both are empty. On Windows the case of a variable's name means nothing.
func (c *checker) merge(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	merged := make(map[string]string, len(a)+len(b))
	maps.Copy(merged, a)
	for name, value := range b {
		if c.env.os() == "windows" {
			maps.DeleteFunc(merged, func(other, _ string) bool { return strings.EqualFold(other, name) })
		}
		merged[name] = value
	}
	return merged
}

// hasNear says whether an unknown key of n was probably meant to be name.
func (n *node) hasNear(name string) bool {
	return slices.ContainsFunc(n.children, func(child *node) bool {
		return findOption(serverOptions(), child.name) == nil && didYouMean(child.name, []string{name}) != ""
	})
}

// expandVariables expands the values of one env table.
func (c *checker) expandVariables(at setting, raw map[string]string, lookups bool) map[string]string {
	expanded := make(map[string]string, len(raw))
	for name, value := range raw {
		expanded[name], _ = c.expandString(at.path+"."+keyText(name), at.node.child(name), value, lookups)
	}
	return expanded
}

// expandString expands one value and complains about each bad reference at its own place.
func (c *checker) expandString(path string, n *node, raw string, lookups bool) (string, bool) {
	e := expander{env: c.env, configDir: c.configDir, lookups: lookups}
	value, bad := e.expand(raw)
	for i, at := range locate(c.doc.text, n.at(), bad) {
		c.complainAbout(path, at, &bad[i].flaw)
	}
	if len(bad) > 0 {
		return "", false
	}
	if strings.Contains(value, "\x00") {
		c.complainAbout(path, n.at(), flawf("the value has a NUL character, which no program can be given"))
		return "", false
	}
	return value, true
}

// checkCommand looks at the program to start. The expanded form decides but only the raw one may be shown.
func checkCommand(system, raw, expanded string) *flaw {
	switch {
	case strings.TrimSpace(expanded) == "":
		if strings.TrimSpace(raw) != "" {
			return flawf("%s is empty", raw)
		}
		return flawf("the command is empty").withHint("it is the program to start")
	case strings.HasPrefix(expanded, "~/"):
		return flawf(`"~" is not expanded`).withHint("write ${home}/…")
	case strings.HasPrefix(expanded, "${"):
		return nil // of a disabled server: not looked up
	case hasSeparator(system, expanded):
		if !isAbsolute(system, expanded) {
			return flawf("%q is a relative path", raw).
				withHint("write an absolute one, ${config_dir}/…, or the bare name of a program in PATH")
		}
	case strings.ContainsFunc(expanded, unicode.IsSpace):
		return flawf("%q is more than a program", raw).withHint("no shell reads it: put the arguments in args")
	}
	return nil
}

// checkServerName keeps names to what can be part of a URL and of a file name on every system.
func checkServerName(name string) *flaw {
	const rule = "names have 1 to 64 of the characters A-Z a-z 0-9 . _ - and start with a letter or digit"
	if name == "" || len(name) > 64 {
		return flawf("the server name %q is empty or too long", name).withHint(rule)
	}
	for i := range len(name) {
		alphanumeric := name[i] != '_' && name[i] != '-' && isBare(name[i])
		if !alphanumeric && (i == 0 || !strings.ContainsRune("._-", rune(name[i]))) {
			return flawf("the server name %q is not allowed", name).withHint(rule)
		}
	}
	device, _, _ := strings.Cut(strings.ToLower(name), ".")
	numbered := len(device) == 4 && (strings.HasPrefix(device, "com") || strings.HasPrefix(device, "lpt")) &&
		device[3] >= '0' && device[3] <= '9'
	if numbered || slices.Contains([]string{"con", "prn", "aux", "nul"}, device) {
		return flawf("the server name %q is the name of a device on Windows", name).withHint("give it another name")
	}
	return nil
}

// settleOrders checks the pairs of keys of which one may not exceed the other. Where only one of a pair was set, here or
// in [defaults], the default of the other follows it.
func (c *checker) settleOrders(s *Server, own, inherited settings) {
	options := serverOptions()
	for _, o := range serverOrders() {
		lowField, highField := findOption(options, o.low).field(s), findOption(options, o.high).field(s)
		if number(lowField) <= number(highField) {
			continue
		}
		low, lowIsOwn := own[o.low]
		high, highIsOwn := own[o.high]
		lowIsSet, highIsSet := lowIsOwn, highIsOwn
		if !lowIsOwn {
			low, lowIsSet = inherited[o.low]
		}
		if !highIsOwn {
			high, highIsSet = inherited[o.high]
		}
		switch {
		case lowIsSet && !highIsSet:
			copyNumber(highField, lowField)
		case highIsSet && !lowIsSet:
			copyNumber(lowField, highField)
		case lowIsOwn:
			line, _ := c.doc.position(high.node.key.start)
			c.complainAbout(low.path, low.node.at(), flawf("%s is more than %s, which is %s in line %d",
				plainText(lowField), high.path, plainText(highField), line))
		case highIsOwn:
			line, _ := c.doc.position(low.node.key.start)
			c.complainAbout(high.path, high.node.at(), flawf("%s is less than %s, which is %s in line %d",
				plainText(highField), low.path, plainText(lowField), line))
		default: // both are from [defaults], and were complained about there
		}
	}
}

// plainText is a number with its unit.
func plainText(field any) string { return strings.Trim(showField(field), `"`) }

func number(field any) int64 {
	switch field := field.(type) {
	case *time.Duration:
		return int64(*field)
	case *int64:
		return *field
	case *int:
		return int64(*field)
	}
	return 0
}

func copyNumber(to, from any) {
	switch to := to.(type) {
	case *time.Duration:
		*to = time.Duration(number(from))
	case *int64:
		*to = number(from)
	case *int:
		*to = int(number(from))
	}
}

package supervisor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// show is an effect in a word or two.
func show(es []effect) string {
	var out []string
	for _, e := range es {
		switch e.kind {
		case effStart:
			out = append(out, fmt.Sprintf("start %d %s", e.id, e.spec.Command))
		case effStop:
			out = append(out, fmt.Sprintf("stop %d drain=%v", e.id, e.drain))
		case effCut:
			out = append(out, fmt.Sprintf("cut %d", e.id))
		case effReady:
			out = append(out, fmt.Sprintf("ready %d", e.id))
		case effAnswer:
			out = append(out, fmt.Sprintf("answer %d ok=%v", e.id, e.err == nil))
		case effArm:
			out = append(out, "arm "+e.delay.String())
		case effDisarm: // without consequence in most places
		}
	}
	return strings.Join(out, ", ")
}

func TestLife(t *testing.T) {
	base := Spec{Command: "a"}.withDefaults()
	lazy := Spec{Command: "a", Lazy: true}.withDefaults()
	b := Spec{Command: "b"}.withDefaults()
	first := Spec{Command: "b", StopFirst: true}.withDefaults()
	type turn struct {
		e    event
		want string // effects
		then State
	}
	boot := turn{event{kind: evBoot}, "start 1 a", StateStarting}
	up := turn{event{kind: evUp, id: 1}, "ready 1", StateReady}
	crash := event{kind: evGone, id: 1, end: ending{exit: Exit{Code: 1}}}
	for _, tt := range []struct {
		name  string
		spec  Spec
		turns []turn
	}{
		{"an eager server starts with Run", base, []turn{boot, up}},
		{"a lazy one starts at the first demand and not twice", lazy, []turn{
			{event{kind: evBoot}, "", StateStopped},
			{event{kind: evDemand}, "start 1 a", StateStarting},
			{event{kind: evDemand}, "", StateStarting},
		}},
		{"a crash is followed by a pause, and demands do not shorten it", base, []turn{
			boot, up,
			{event{kind: evDown, id: 1}, "", StateDraining},
			{crash, "arm 200ms", StateBackoff},
			{event{kind: evDemand}, "", StateBackoff},
			{event{kind: evTimer}, "start 2 a", StateStarting},
		}},
		{"Start ends a pause at once", base, []turn{
			boot,
			{crash, "arm 200ms", StateBackoff},
			{event{kind: evStart}, "start 2 a", StateStarting},
		}},
		{"what cannot be executed fails at once", base, []turn{
			boot,
			{event{kind: evGone, id: 1, end: ending{permanent: true}}, "arm 5m0s", StateFailed},
			{event{kind: evDemand}, "", StateFailed},
			{event{kind: evTimer}, "start 2 a", StateStarting},
		}},
		{"a lazy server that failed waits for a demand, without a timer", lazy, []turn{
			{event{kind: evDemand}, "start 1 a", StateStarting},
			{event{kind: evGone, id: 1, end: ending{permanent: true}}, "", StateFailed},
			{event{kind: evDemand}, "", StateFailed},
		}},
		{"Stop during a start", base, []turn{
			boot,
			{event{kind: evStop}, "stop 1 drain=false", StateDraining},
			{event{kind: evDemand}, "", StateDraining},
			{event{kind: evUp, id: 1}, "", StateDraining},
			{crash, "", StateStopped},
			{event{kind: evDemand}, "", StateStopped},
			{event{kind: evStart}, "start 2 a", StateStarting},
		}},
		{"a second Stop cuts the drain of the first", base, []turn{
			boot, up,
			{event{kind: evStop}, "stop 1 drain=true", StateDraining},
			{event{kind: evStop}, "cut 1", StateDraining},
		}},
		{"Start while it is being stopped starts it again afterwards", base, []turn{
			boot, up,
			{event{kind: evStop}, "stop 1 drain=true", StateDraining},
			{event{kind: evStart}, "", StateDraining},
			{crash, "start 2 a", StateStarting},
		}},
		{"a demand while an unused child is being stopped", base, []turn{
			boot, up,
			{event{kind: evIdle, id: 1}, "stop 1 drain=true", StateDraining},
			{event{kind: evDemand}, "", StateDraining},
			{crash, "start 2 a", StateStarting},
		}},
		{"Restart waits for the old child", base, []turn{
			boot, up,
			{event{kind: evRestart}, "stop 1 drain=true", StateDraining},
			{crash, "start 2 a", StateStarting},
		}},
		{"Replace makes before it breaks", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evUp, id: 2}, "stop 1 drain=true, ready 2, answer 7 ok=true", StateReady},
			{crash, "", StateReady},
		}},
		{"Replace by a child that dies keeps the old one", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evGone, id: 2}, "answer 7 ok=false", StateReady},
			{event{kind: evRestart}, "stop 1 drain=true", StateDraining},
			{crash, "start 3 b", StateStarting},
		}},
		{"the old child dies while the new one starts", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evDown, id: 1}, "", StateStarting},
			{crash, "", StateStarting},
			{event{kind: evUp, id: 2}, "ready 2, answer 7 ok=true", StateReady},
		}},
		{"both die: the old command goes on after a pause", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evDown, id: 1}, "", StateStarting},
			{crash, "", StateStarting},
			{event{kind: evGone, id: 2}, "answer 7 ok=false, arm 200ms", StateBackoff},
			{event{kind: evTimer}, "start 3 a", StateStarting},
		}},
		{"a newer Replace takes the place of one under way", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evReplace, id: 8, spec: b}, "answer 7 ok=false, stop 2 drain=false, start 3 b", StateReady},
			{event{kind: evUp, id: 2}, "", StateReady},
			{event{kind: evUp, id: 3}, "stop 1 drain=true, ready 3, answer 8 ok=true", StateReady},
		}},
		{"Replace of a starting child ends it first", base, []turn{
			boot,
			{event{kind: evReplace, id: 7, spec: b}, "stop 1 drain=false", StateDraining},
			{crash, "start 2 b", StateStarting},
			{event{kind: evUp, id: 2}, "ready 2, answer 7 ok=true", StateReady},
		}},
		{"stop-first goes back when the new one dies", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: first}, "stop 1 drain=true", StateDraining},
			{crash, "start 2 b", StateStarting},
			{event{kind: evGone, id: 2}, "answer 7 ok=false, start 3 a", StateStarting},
		}},
		{"Stop during a Replace: the next start is the new command", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evStop}, "stop 2 drain=false, answer 7 ok=false, stop 1 drain=true", StateDraining},
			{crash, "", StateStopped},
			{event{kind: evGone, id: 2}, "", StateStopped},
			{event{kind: evStart}, "start 3 b", StateStarting},
		}},
		{"the end of Run", base, []turn{
			boot, up,
			{event{kind: evReplace, id: 7, spec: b}, "start 2 b", StateReady},
			{event{kind: evShutdown}, "stop 2 drain=false, answer 7 ok=false, stop 1 drain=true", StateDraining},
			{event{kind: evReplace, id: 8, spec: b}, "answer 8 ok=false", StateDraining},
			{event{kind: evGone, id: 2}, "", StateDraining},
			{crash, "", StateStopped},
		}},
		{"an eager server by Retune starts", lazy, []turn{
			{event{kind: evBoot}, "", StateStopped},
			{event{kind: evRetune, spec: base}, "start 1 a", StateStarting},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(tt.spec)
			at := time.Unix(1_000_000, 0)
			for i, turn := range tt.turns {
				at = at.Add(time.Millisecond)
				turn.e.at = at
				var effects []effect
				l, effects = next(l, turn.e)
				if got := show(effects); got != turn.want || l.state != turn.then {
					t.Fatalf("turn %d: %q and %s, want %q and %s", i+1, got, l.state, turn.want, turn.then)
				}
			}
		})
	}
}

// Whatever happens in whatever order: at most one current child and one candidate, every Replace is answered exactly
// once, nothing is stopped that was not started, and a life that is to end does.
func TestLifeKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(Spec{Lazy: rapid.Bool().Draw(t, "lazy"), Command: "a"}.withDefaults())
		at := time.Unix(1_000_000, 0)
		living := map[uint64]bool{} // started, not gone
		stopped := map[uint64]bool{}
		upOnce := map[uint64]bool{}
		open := map[uint64]bool{} // unanswered Replaces
		armed := false
		apply := func(e event) {
			e.at, e.rand = at, rapid.Float64Range(0, 0.999).Draw(t, "rand")
			before := fmt.Sprintf("%+v", l)
			old := l
			var effects []effect
			l, effects = next(l, e)
			if now := fmt.Sprintf("%+v", old); now != before {
				t.Fatalf("next changed its input: %s became %s", before, now)
			}
			for _, f := range effects {
				switch f.kind {
				case effStart:
					if living[f.id] || l.closing {
						t.Fatalf("start of %d", f.id)
					}
					living[f.id] = true
				case effStop:
					if !living[f.id] || stopped[f.id] {
						t.Fatalf("stop of %d, living %v, stopped %v", f.id, living[f.id], stopped[f.id])
					}
					stopped[f.id] = true
				case effReady:
					if !living[f.id] || stopped[f.id] {
						t.Fatalf("ready of %d", f.id)
					}
				case effAnswer:
					if !open[f.id] {
						t.Fatalf("answer to %d", f.id)
					}
					delete(open, f.id)
				case effArm:
					armed = true
				case effDisarm:
					armed = false
				}
			}
			wanted := 0
			for id := range living {
				if !stopped[id] {
					wanted++
				}
			}
			if wanted > 2 {
				t.Fatalf("%d children are wanted", wanted)
			}
			if l.state == StateReady && (l.cur.phase != ready || stopped[l.cur.id]) {
				t.Fatalf("ready with %+v", l.cur)
			}
			if l.state == StateBackoff && !armed {
				t.Fatal("back-off without a timer")
			}
		}
		anyOf := func(m map[uint64]bool) uint64 {
			var ids []uint64
			for id := range l.lastID {
				if m[id+1] {
					ids = append(ids, id+1)
				}
			}
			if len(ids) == 0 {
				return 0
			}
			return rapid.SampledFrom(ids).Draw(t, "id")
		}
		gone := func(id uint64, end ending) {
			delete(living, id)
			apply(event{kind: evGone, id: id, end: end})
		}
		apply(event{kind: evBoot})
		var token uint64
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			at = at.Add(time.Duration(rapid.IntRange(0, 90_000).Draw(t, "ms")) * time.Millisecond)
			switch kind := rapid.SampledFrom([]eventKind{
				evDemand, evTimer, evUp, evUp, evUp, evDown, evGone, evGone, evIdle, evStart, evStop, evRestart, evReplace, evReplace, evRetune,
			}).Draw(t, "event"); kind {
			case evTimer:
				if armed {
					armed = false
					apply(event{kind: evTimer})
				}
			case evUp:
				if id := anyOf(living); id != 0 && !upOnce[id] {
					upOnce[id] = true
					apply(event{kind: evUp, id: id})
				}
			case evDown, evIdle:
				if id := anyOf(living); id != 0 && upOnce[id] {
					apply(event{kind: kind, id: id})
					if kind == evDown {
						gone(id, ending{})
					}
				}
			case evGone:
				if id := anyOf(living); id != 0 && (!upOnce[id] || stopped[id]) {
					gone(id, ending{
						fresh: rapid.Bool().Draw(t, "fresh"), permanent: rapid.Bool().Draw(t, "permanent"), timedOut: rapid.Bool().Draw(t, "timedOut"),
					})
				}
			case evReplace:
				token++
				open[token] = true
				apply(event{kind: evReplace, id: token, spec: Spec{
					Command: "b", StopFirst: rapid.Bool().Draw(t, "stopFirst"), Lazy: rapid.Bool().Draw(t, "newLazy"),
				}.withDefaults()})
			default:
				apply(event{kind: kind})
			}
		}
		apply(event{kind: evShutdown})
		for id := anyOf(living); id != 0; id = anyOf(living) {
			if !stopped[id] && upOnce[id] && l.cur.id != id {
				t.Fatalf("%d was forgotten", id)
			}
			gone(id, ending{})
		}
		if !l.over() || len(open) > 0 || l.state != StateStopped {
			t.Fatalf("not over: %+v, open %v", l, open)
		}
	})
}

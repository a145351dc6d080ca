package actuator

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// testMaintenance executes intents of a maintenance up to the verdict on a pod that cannot be evicted.
func testMaintenance(p *place) {
	pod := p.pods(1)[0]
	p.budget("api", 1)
	bus := newMemory()
	stop := p.lead(p.actuator(func(c *Config) { c.Bus = bus }))
	defer stop()
	intent := p.open(pod).Intent
	intent.Reason = "maintenance kernel drains node " + pod.Spec.NodeName + ": new kernel"
	e := schematest.Event(p, "/test/maintenance", schemas.Intents{
		Profile: "default", Strategy: schemas.MaintenanceStrategy, Intents: []schemas.Intent{intent},
		Scope: schemas.ScopeRef{
			Kind: schemas.MaintenanceKind, Key: "kernel", Event: "maintenance.1", Sequence: 1, Since: time.Now(),
		},
	}, time.Now(), schemas.Event{})
	bus.put(e)
	p.until(bus, 1, false)

	v := schematest.Decode[schemas.Verdict](p, bus.published[0])
	expect.Equal(p, "verdict", []string{string(v.Outcome), string(v.Method), v.Intent.Reason},
		[]string{"restarted", string(schemas.MethodRestart), intent.Reason})
	expect.Equal(p, "eviction calls", p.evictions(), nil)
}

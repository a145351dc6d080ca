package page

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	control "github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// The size of the picture, and how fast it changes.
const (
	manyNodes, manyPods, manyWorkloads = 5000, 100_000, 500

	movesATime = 10
	moveEvery  = 100 * time.Millisecond
	measured   = 15 * time.Second
	warmUp     = 10 * time.Second
	// settles is the time after which Chromium has returned the memory that it needed to load the page.
	settles  = 40 * time.Second
	mostFor1 = 8 // streams of one user
)

// clientsVariable makes this program read streams: the address, the number of clients, and the token of each user.
const clientsVariable = "PAGE_BENCH_CLIENTS"

func TestMain(m *testing.M) {
	if of := os.Getenv(clientsVariable); of != "" {
		readStreams(of)
		return
	}
	os.Exit(m.Run())
}

// BenchmarkPicture draws generated nodes and pods, which the real server sends from a cache, in Chromium without a graphics card.
func BenchmarkPicture(b *testing.B) {
	w := newWorld(b)
	users := make([]control.User, 50/mostFor1+1)
	for i := range users {
		users[i] = control.User{Name: fmt.Sprintf("bench-%d", i), Groups: []string{"system:masters"}, Token: fmt.Sprintf("bench-%d-token", i)}
	}
	plane := clustertest.New(b, control.Options{Users: users}) // authenticates the clients
	server, err := api.New(api.Config{
		Client: plane.Client(), Cluster: w.cache, Bus: bustest.New(b), Policy: func() policy.Policy { return policy.Policy{} },
		Log: slog.New(slog.DiscardHandler),
	})
	expect.Must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	go w.change(ctx)
	local, public := httptest.NewServer(server.Operator()), httptest.NewServer(server.Network())
	b.Cleanup(local.CloseClientConnections)
	b.Cleanup(public.CloseClientConnections)
	for b.Loop() {
		draw(b, local.URL+"/")
		for _, n := range []int{1, 50} {
			b.Logf("%d clients: %s", n, serve(b, public.URL, n, users))
		}
	}
}

// draw measures the frames and the memory of a tab.
func draw(b *testing.B, address string) {
	tab := newBrowser(b)
	tab.Do(network.Disable()) // which keeps responses for developers
	tab.show(1360, 820, "light")
	memory := func(when string) {
		process, script := tab.memory()
		b.Logf("tab %s: %.0f MiB of its process, %.0f MiB of JavaScript", when, process, script)
		b.ReportMetric(process, "MiB-tab-"+when)
	}
	memory("blank")
	began := time.Now()
	tab.open(address)
	loaded := time.Since(began)
	memory("loaded")
	<-time.After(settles)
	frames := get[struct{ Count, P50, P99, Worst, Work float64 }](tab, fmt.Sprintf(`new Promise((done) => {
		const gaps = [], work = [], p = rehome.stage.picture, render = p.render.bind(p), begin = performance.now();
		p.render = (now) => { const t = performance.now(); render(now); work.push(performance.now() - t); };
		let last = begin;
		const frame = () => {
			const now = performance.now();
			gaps.push(now - last);
			last = now;
			if (now - begin < %d) requestAnimationFrame(frame);
			else {
				const at = (list, part) => list.sort((a, b) => a - b)[Math.floor((list.length - 1) * part)];
				done({Count: gaps.length, P50: at(gaps, .5), P99: at(gaps, .99), Worst: at(gaps, 1), Work: at(work, .99)});
			}
		};
		requestAnimationFrame(frame);
	})`, measured.Milliseconds()))
	drawn := get[[]int](tab, `[rehome.model.nodes.size, rehome.model.pods.size, rehome.stage.picture.travels.length]`)
	b.Logf("%d nodes and %d pods drawn %.1f s after the page was opened, %d pods on their way", drawn[0], drawn[1], loaded.Seconds(), drawn[2])
	b.Logf("frames: %.1f a second, p50 %.1f ms, p99 %.1f ms, longest %.1f ms; the work of a frame p99 %.1f ms",
		frames.Count/measured.Seconds(), frames.P50, frames.P99, frames.Worst, frames.Work)
	memory("moving")
	tab.collect()
	memory("collected")
	b.ReportMetric(frames.P50, "ms/frame-p50")
	b.ReportMetric(frames.P99, "ms/frame-p99")
	if drawn[0] != manyNodes || drawn[1] < manyPods-movesATime || drawn[2] == 0 {
		b.Errorf("the picture has %v nodes, pods, and pods on their way", drawn)
	}
	tab.NoErrors("the page")
}

// serve measures the server with clients in another process, which begin a line of output before and after the measurement.
func serve(b *testing.B, address string, n int, users []control.User) string {
	own, err := os.Executable()
	expect.Must(b, err)
	list := []string{address, strconv.Itoa(n)}
	for _, u := range users {
		list = append(list, u.Token)
	}
	c := exec.CommandContext(b.Context(), own)
	c.Env, c.Stderr = append(os.Environ(), clientsVariable+"="+strings.Join(list, " ")), os.Stderr
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	expect.Must(b, err)
	var spent [2]time.Duration
	var total int
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		spent[min(i, 1)] = usage(b)
		total, _ = strconv.Atoi(lines.Text())
	}
	if err := c.Wait(); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf("the server uses %.1f %% of a core and sends %.1f KiB/s to each client",
		100*float64(spent[1]-spent[0])/float64(measured), float64(total)/1024/measured.Seconds()/float64(n))
}

// usage is the CPU time of this process.
func usage(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readStreams reads the streams of clients, and prints a line when they have the snapshot, and the number of bytes after the measurement.
func readStreams(of string) {
	list := strings.Fields(of)
	n, _ := strconv.Atoi(list[1])
	var total atomic.Int64
	for i := range n {
		request, err := http.NewRequest(http.MethodGet, list[0]+"/v1/watch", nil)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+list[2+i/mostFor1])
		request.Header.Set("Accept-Encoding", "gzip")
		go func() {
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil || response.StatusCode != http.StatusOK {
				panic(fmt.Sprint(err, response))
			}
			defer response.Body.Close()
			for buffer := make([]byte, 64<<10); ; {
				read, err := response.Body.Read(buffer)
				total.Add(int64(read))
				if err == io.EOF {
					return
				}
				if err != nil {
					panic(err)
				}
			}
		}()
	}
	time.Sleep(warmUp)
	before := total.Load()
	fmt.Println(0)
	time.Sleep(measured)
	fmt.Println(total.Load() - before)
}

// world is a cache of generated objects.
type world struct {
	b      *testing.B
	cache  *cluster.Cache
	random *rand.Rand
	sets   []*appsv1.ReplicaSet
	pods   []*corev1.Pod
	made   int
}

func newWorld(b *testing.B) *world {
	cache, err := cluster.NewOffline(api.Kinds()...)
	expect.Must(b, err)
	w := &world{b: b, cache: cache, random: rand.New(rand.NewPCG(1, 2))}
	for i := range manyNodes {
		name := fmt.Sprintf("ip-10-0-%d-%d.internal", i/250, i%250)
		room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelTopologyZone: "zone-" + string(rune('a'+i%3)),
			}},
			Spec:   corev1.NodeSpec{Unschedulable: i%41 == 0},
			Status: corev1.NodeStatus{Allocatable: room, Capacity: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		w.set(n)
	}
	for i := range manyWorkloads {
		name, is := fmt.Sprintf("service-%d", i), true
		w.set(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("deployment-" + name)}})
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name + "-7d4b9c6f5", UID: types.UID("set-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name, UID: types.UID("deployment-" + name), Controller: &is}},
		}}
		w.set(set)
		w.sets = append(w.sets, set)
	}
	for range manyPods {
		w.pods = append(w.pods, w.pod(w.sets[w.random.IntN(manyWorkloads)]))
	}
	return w
}

func (w *world) set(o any) {
	if err := w.cache.Set(o); err != nil {
		w.b.Error(err)
	}
}

// pod adds a pod on any node.
func (w *world) pod(set *appsv1.ReplicaSet) *corev1.Pod {
	is := true
	i := w.random.IntN(manyNodes)
	w.made++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("%s-%05x", set.Name, w.made), CreationTimestamp: metav1.Now(),
			UID:             types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", w.random.Uint32(), w.random.Uint32()&0xffff, w.made)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: &is}},
		},
		Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("ip-10-0-%d-%d.internal", i/250, i%250)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	w.set(p)
	return p
}

// change replaces pods on other nodes until ctx ends.
func (w *world) change(ctx context.Context) {
	for tick := time.Tick(moveEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		for range movesATime {
			i := w.random.IntN(len(w.pods))
			old := w.pods[i]
			if err := w.cache.Remove(old); err != nil {
				w.b.Error(err)
			}
			for _, set := range w.sets {
				if set.UID == old.OwnerReferences[0].UID {
					w.pods[i] = w.pod(set)
					break
				}
			}
		}
	}
}

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// PodDialer connects to a port of a pod through the API server, with the protocol of kubectl port-forward. It opens no local
// port, which other users of the machine could use. It is safe for concurrent use.
type PodDialer struct {
	Config *rest.Config
	// Find returns the pod. It is called again when the connection to the pod was lost, because another pod can have replaced it.
	Find func(context.Context) (types.NamespacedName, error)
	Port int

	mu      sync.Mutex
	pod     types.NamespacedName
	streams httpstream.Connection // nil: not connected
	next    int                   // request ID of the next connection
}

// Dial opens a connection to the pod. Its arguments network and address do not count.
func (d *PodDialer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams != nil && isClosed(d.streams) {
		d.streams = nil
	}
	if d.streams == nil {
		if err := d.connect(ctx); err != nil {
			return nil, err
		}
	}
	d.next++
	conn, err := d.open(d.streams, d.next)
	if err != nil {
		_ = d.streams.Close()
		d.streams = nil
		return nil, fmt.Errorf("port %d of pod %s: %w", d.Port, d.pod, err)
	}
	return conn, nil
}

// Close closes all connections.
func (d *PodDialer) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams == nil {
		return nil
	}
	err := d.streams.Close()
	d.streams = nil
	return err
}

func isClosed(c httpstream.Connection) bool {
	select {
	case <-c.CloseChan():
		return true
	default:
		return false
	}
}

// connect opens the connection to the API server that carries the streams of all connections. The caller holds d.mu.
func (d *PodDialer) connect(ctx context.Context) error {
	pod, err := d.Find(ctx)
	if err != nil {
		return err
	}
	dialer, err := d.dialer(pod)
	if err != nil {
		return fmt.Errorf("forward to pod %s: %w", pod, err)
	}
	type dialed struct {
		streams httpstream.Connection
		err     error
	}
	result := make(chan dialed, 1)
	go func() { // the dialer has no context
		streams, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		result <- dialed{streams, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if late := <-result; late.err == nil {
				_ = late.streams.Close()
			}
		}()
		return context.Cause(ctx)
	case got := <-result:
		if got.err != nil {
			return fmt.Errorf("forward to pod %s: %w", pod, got.err)
		}
		d.pod, d.streams = pod, got.streams
		return nil
	}
}

// dialer uses a websocket or, with an API server or a proxy that refuses it, SPDY.
func (d *PodDialer) dialer(pod types.NamespacedName) (httpstream.Dialer, error) {
	client, err := kubernetes.NewForConfig(d.Config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Get().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, d.Config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(d.Config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	return portforward.NewFallbackDialerForStreaming(websocket, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// open opens the two streams of a connection.
func (d *PodDialer) open(c httpstream.Connection, id int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(d.Port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.Itoa(id))
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failure, err := c.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failure.Close() // only the pod writes to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := c.CreateStream(headers)
	if err != nil {
		c.RemoveStreams(failure)
		return nil, err
	}
	near, far := net.Pipe()
	conn := &podConn{Conn: near, about: fmt.Sprintf("port %d of pod %s", d.Port, d.pod)}
	go func() {
		conn.carry(far, data, failure)
		c.RemoveStreams(data, failure)
	}()
	return conn, nil
}

// podConn is a connection to a port of a pod.
type podConn struct {
	net.Conn
	about  string
	failed atomic.Pointer[error] // stored before the other end of the pipe is closed
}

// Read returns the error of the pod instead of the end of the data, if there is one.
func (c *podConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.cause(err, io.EOF)
}

// Write returns the error of the pod instead of the end of the pipe, if there is one.
func (c *podConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.cause(err, io.ErrClosedPipe)
}

// cause replaces err by the error of the pod if err is end.
func (c *podConn) cause(err, end error) error {
	if failed := c.failed.Load(); failed != nil && errors.Is(err, end) {
		return *failed
	}
	return err
}

// carry copies data between the pipe and the streams until one of them ends.
func (c *podConn) carry(far net.Conn, data, failure httpstream.Stream) {
	received := make(chan struct{})
	sent := make(chan struct{})
	go func() {
		_, _ = io.Copy(far, data) // its end is the end of the connection, however it came
		close(received)
	}()
	go func() {
		_, _ = io.Copy(data, far)
		_ = data.Close()
		close(sent)
	}()
	select {
	case <-received:
	case <-sent: // the near end of a pipe is closed in both directions
	}
	_ = data.Reset() // unsent data would block the stream of the error
	select {
	case <-received:
		if text, _ := io.ReadAll(failure); len(text) > 0 {
			failed := fmt.Errorf("%s: %s", c.about, text)
			c.failed.Store(&failed)
		}
	default:
	}
	_ = failure.Reset()
	_ = far.Close()
	<-received
	<-sent
}

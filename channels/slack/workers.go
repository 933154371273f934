package slack

import (
	"hash/fnv"
	"sync"
)

// workers run jobs in the background. Jobs with the same key run one after the
// other, in the order they came in.
type workers struct {
	queues []chan func()
	wg     sync.WaitGroup

	mu     sync.RWMutex
	closed bool
}

// newWorkers starts lanes queues of the given depth, with each as many workers
// as perLane; more than one gives up the order.
func newWorkers(lanes, perLane, depth int) *workers {
	w := &workers{queues: make([]chan func(), lanes)}
	for i := range w.queues {
		w.queues[i] = make(chan func(), depth)
		for range perLane {
			w.wg.Go(func() {
				for job := range w.queues[i] {
					job()
				}
			})
		}
	}
	return w
}

// do queues a job and returns at once; false if the queue is full or closed.
func (w *workers) do(key string, job func()) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return false
	}
	select {
	case w.queues[h.Sum32()%uint32(len(w.queues))] <- job:
		return true
	default:
		return false
	}
}

// close takes no more jobs and waits for those that are queued.
func (w *workers) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		for _, q := range w.queues {
			close(q)
		}
	}
	w.mu.Unlock()
	w.wg.Wait()
}

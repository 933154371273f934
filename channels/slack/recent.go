package slack

import (
	"slices"
	"sync"
)

// recent is a bounded map of what was seen last. It is a hint: what matters is
// in the database.
type recent struct {
	mu    sync.Mutex
	seen  map[string]string
	order []string
	most  int
}

func newRecent(most int) *recent { return &recent{seen: map[string]string{}, most: most} }

// add reports whether the key is new.
func (r *recent) add(key string) bool { return r.put(key, "") }

// put keeps a value, unless there is one; it reports whether the key is new.
func (r *recent) put(key, value string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.seen[key]; ok {
		return false
	}
	if len(r.order) >= r.most {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	r.seen[key] = value
	r.order = append(r.order, key)
	return true
}

func (r *recent) get(key string) (value string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, ok = r.seen[key]
	return value, ok
}

func (r *recent) has(key string) bool {
	_, ok := r.get(key)
	return ok
}

func (r *recent) remove(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.seen[key]; ok {
		delete(r.seen, key)
		r.order = slices.DeleteFunc(r.order, func(k string) bool { return k == key })
	}
}

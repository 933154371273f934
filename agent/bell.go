package agent

// Bell wakes the loops of this process when the database has work for them. It
// is a hint: a ring that is lost costs one poll.
type Bell struct {
	work, post chan struct{}
}

// NewBell returns a Bell that nobody has rung.
func NewBell() *Bell {
	return &Bell{work: make(chan struct{}, 1), post: make(chan struct{}, 1)}
}

// RingWork says that a session may be runnable.
func (b *Bell) RingWork() { ring(b.work) }

// RingPost says that a delivery may be due.
func (b *Bell) RingPost() { ring(b.post) }

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

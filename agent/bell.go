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

// Ring says that a session may be runnable or a delivery due.
func (b *Bell) Ring() {
	for _, c := range []chan struct{}{b.work, b.post} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

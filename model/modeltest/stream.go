package modeltest

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// event is one piece of a stream. part says what it is a piece of.
type event struct {
	name string // of the SSE event; empty = none
	data string
	part part
}

type part int

const (
	partStart part = iota
	partText
	partCall
	partEnd  // whatever follows the last call
	partLast // the event without which the stream is not whole
)

func (s *Server) answer(w http.ResponseWriter, r *http.Request, req Request, reply Reply, a api) {
	if reply.cut == CutHeaders {
		panic(http.ErrAbortHandler)
	}
	for name, value := range reply.header {
		w.Header().Set(name, value)
	}
	if reply.status != 0 {
		if reply.contentType == "" {
			reply.contentType, reply.body = "application/json", errorBody(a.name(), reply.status, reply.text)
		}
		w.Header().Set("Content-Type", reply.contentType)
		w.WriteHeader(reply.status)
		io.WriteString(w, reply.body)
		return
	}
	if reply.contentType == "" {
		reply.contentType = "text/event-stream; charset=utf-8"
	}
	w.Header().Set("Content-Type", reply.contentType)
	s.stream(w, r, reply, a.events(req, reply, s.mint))
}

// stream writes the events up to the reply's cut.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, reply Reply, events []event) {
	flusher := http.NewResponseController(w)
	end, whole := cutAt(events, reply)
	var out bytes.Buffer
	for i, e := range events[:end] {
		if reply.holdInside && i == end/2 {
			w.Write(out.Bytes())
			out.Reset()
			flusher.Flush()
			if !s.wait(r.Context(), reply, true) {
				panic(http.ErrAbortHandler)
			}
		}
		if e.name != "" {
			out.WriteString("event: " + e.name + "\n")
		}
		out.WriteString("data: " + e.data + "\n\n")
		if reply.pace > 0 {
			w.Write(out.Bytes())
			out.Reset()
			flusher.Flush()
			select {
			case <-time.After(reply.pace):
			case <-r.Context().Done():
				panic(http.ErrAbortHandler)
			case <-s.closed:
				panic(http.ErrAbortHandler)
			}
		}
	}
	w.Write(out.Bytes())
	if !whole && !reply.clean {
		flusher.Flush()
		panic(http.ErrAbortHandler)
	}
}

// cutAt returns how many events are sent, and whether the stream is whole then.
func cutAt(events []event, reply Reply) (end int, whole bool) {
	first := func(p part) int {
		for i, e := range events {
			if e.part >= p {
				return i
			}
		}
		return len(events)
	}
	switch reply.cut {
	case CutText:
		return (first(partText) + first(partCall) + 1) / 2, false
	case CutCall:
		return first(partCall), false
	case CutInCall:
		return max(first(partEnd)-2, first(partCall)+1), false
	case CutEnd:
		return first(partLast), false
	}
	return len(events), true
}

// pieces cuts text between characters, small enough that every joining is
// exercised and few enough that big answers stay fast.
func pieces(text string) []string {
	size := max(7, len(text)/200)
	var out []string
	start, count := 0, 0
	for i := range text {
		if count == size {
			out = append(out, text[start:i])
			start, count = i, 0
		}
		count++
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

package demo

import "testing"

func TestReasonOfAFailure(t *testing.T) {
	for text, want := range map[string]string{
		`{"success":false,"outcome":"denied","error":"Denied by a person: not now"}`: "Denied by a person: not now",
		`{"success":false}`: `{"success":false}`,
		"not JSON":          "not JSON",
	} {
		if got := reason(text); got != want {
			t.Errorf("reason(%q) = %q, want %q", text, got, want)
		}
	}
}

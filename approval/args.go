package approval

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
)

// decodeArgs reads an arguments object for conditions: a number that is written
// as an integer and fits is an int64 or uint64, any other a float64.
func decodeArgs(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var args map[string]any
	if err := dec.Decode(&args); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	if args == nil {
		return nil, errors.New("no object")
	}
	for key, value := range args {
		v, err := decodeNumbers(value)
		if err != nil {
			return nil, err
		}
		args[key] = v
	}
	return args, nil
}

func decodeNumbers(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
			return n, nil
		}
		return v.Float64() // an error if it is out of range
	case map[string]any:
		for key := range v {
			if v[key], err = decodeNumbers(v[key]); err != nil {
				return nil, err
			}
		}
	case []any:
		for i := range v {
			if v[i], err = decodeNumbers(v[i]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

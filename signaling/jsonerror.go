package signaling

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// DescribeJSONError returns the error of encoding/json in words for clients: the text of a wrong type names the types of this program.
func DescribeJSONError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s must not be a JSON %s", cmp.Or(wrong.Field, "it"), wrong.Value)
	}
	return err
}

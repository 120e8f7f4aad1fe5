// Package digits validates numbers that callers say or enter on a keypad: card numbers, bank accounts, dates.
package digits

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Names lists the names that [FindCheck] accepts, for error messages. "iban:DE" is an example for all countries. A
// plain "iban" is not in the list, because callers cannot enter letters on a keypad.
const Names = "luhn, iban:DE, date:ddmmyyyy, date:mmddyyyy, date:yyyymmdd, date:mmyy"

var dateLayouts = map[string]string{"ddmmyyyy": "02012006", "mmddyyyy": "01022006", "yyyymmdd": "20060102", "mmyy": "0106"}

// FindCheck returns the check with this name, or nil. The empty name accepts anything. Checks do not limit the length.
// With "iban:DE", the numbers must not include the country.
func FindCheck(name string) func(number string) bool {
	kind, of, _ := strings.Cut(name, ":")
	switch {
	case name == "":
		return func(string) bool { return true }
	case name == "luhn":
		return IsValidLuhn
	case name == "iban":
		return IsValidIBAN
	case kind == "iban" && len(of) == 2 && strings.Trim(of, letters) == "":
		return func(number string) bool { return IsValidIBAN(of + number) }
	case kind == "date" && dateLayouts[of] != "":
		return func(number string) bool {
			_, err := time.Parse(dateLayouts[of], number)
			return err == nil
		}
	}
	return nil
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// IsValidLuhn validates a number with a check digit (ISO/IEC 7812-1, annex B).
func IsValidLuhn(number string) bool {
	sum := 0
	for i := range len(number) {
		d := int(number[len(number)-1-i]) - '0'
		if d < 0 || d > 9 {
			return false
		}
		if i%2 == 1 {
			d = d*2/10 + d*2%10
		}
		sum += d
	}
	return number != "" && sum%10 == 0
}

// IsValidIBAN validates an account number (ISO 13616-1), in capital letters and without spaces.
func IsValidIBAN(number string) bool {
	const shortest, longest = 5, 34
	if len(number) < shortest || len(number) > longest || strings.Trim(number[:2], letters) != "" {
		return false
	}
	var text strings.Builder
	for _, c := range []byte(number[4:] + number[:4]) {
		switch {
		case c >= '0' && c <= '9':
			text.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			fmt.Fprint(&text, c-'A'+10)
		default:
			return false
		}
	}
	n, ok := new(big.Int).SetString(text.String(), 10)
	return ok && n.Mod(n, big.NewInt(97)).Int64() == 1
}

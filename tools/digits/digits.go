// Package digits validates numbers that callers say or enter by keys: card numbers, bank accounts, dates.
package digits

import (
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Names lists the names that [Check] accepts, for error messages. iban:DE stands for any country: keypads have no
// letters for a plain "iban".
const Names = "luhn, iban:DE, date:ddmmyyyy, date:mmddyyyy, date:yyyymmdd, date:mmyy"

var dateLayouts = map[string]string{"ddmmyyyy": "02012006", "mmddyyyy": "01022006", "yyyymmdd": "20060102", "mmyy": "0106"}

// Check returns the check with this name, or nil. The empty name accepts anything. Checks do not limit the length.
// Numbers for iban:DE omit the country.
func Check(name string) func(number string) bool {
	kind, of, _ := strings.Cut(name, ":")
	switch {
	case name == "":
		return func(string) bool { return true }
	case name == "luhn":
		return Luhn
	case name == "iban":
		return IBAN
	case kind == "iban" && len(of) == 2 && strings.Trim(of, letters) == "":
		return func(number string) bool { return IBAN(of + number) }
	case kind == "date" && dateLayouts[of] != "":
		return func(number string) bool {
			_, err := time.Parse(dateLayouts[of], number)
			return err == nil
		}
	}
	return nil
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Luhn validates a number with a check digit (ISO/IEC 7812-1, annex B).
func Luhn(number string) bool {
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

// IBAN validates an account number (ISO 13616-1), in capital letters and without spaces.
func IBAN(number string) bool {
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

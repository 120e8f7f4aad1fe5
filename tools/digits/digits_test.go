package digits_test

import (
	"testing"

	"voxgate/tools/digits"
)

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		check, number string
		want          bool
	}{
		{"", "anything", true},
		{"luhn", "4012888888881881", true},
		{"luhn", "4012888888881882", false},
		{"luhn", "401288888888188x", false},
		{"luhn", "", false},
		{"iban", "DE89370400440532013000", true},
		{"iban", "GB82WEST12345698765432", true}, // with letters in the account
		{"iban", "GB82WEST12345698765433", false},
		{"iban", "gb82west12345698765432", false},
		{"iban", "1289370400440532013000", false},
		{"iban", "DE89", false},
		{"iban", "DE8937040044053201300012345678901234567", false},
		{"iban:DE", "89370400440532013000", true},
		{"iban:AT", "89370400440532013000", false},
		{"date:ddmmyyyy", "29022028", true},
		{"date:ddmmyyyy", "29022027", false},
		{"date:mmyy", "1327", false},
	} {
		if got := digits.FindCheck(test.check)(test.number); got != test.want {
			t.Errorf("%s of %q: %v", test.check, test.number, got)
		}
	}
	for _, name := range []string{"lun", "iban:", "iban:de", "iban:DEU", "date", "date:ddmm"} {
		if digits.FindCheck(name) != nil {
			t.Errorf("there is a check %q", name)
		}
	}
}

package assistant

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

func TestNeeds(t *testing.T) {
	for _, n := range needs {
		if n.Need == "" || len(n.Words) == 0 || len(n.Tools) > 3 || (len(n.Tools) == 0) == (len(n.Needs) == 0) {
			t.Errorf("%+v", n)
		}
		for _, id := range n.Tools {
			if e, ok := Find(id); !ok || e.ID != id {
				t.Errorf("%s: there is no tool %s", n.Need, id)
			}
		}
		for _, name := range n.Needs {
			if !slices.ContainsFunc(needs, func(n need) bool { return n.Need == name && n.Tools != nil }) {
				t.Errorf("%s: there is no need %s", n.Need, name)
			}
		}
	}
}

// For wishes in plain words, an engineer would accept at least 80 % of the first three recommendations, without a model.
func TestRecommendationsForPlainWishes(t *testing.T) {
	data, err := os.ReadFile("testdata/wishes.json")
	if err != nil {
		t.Fatal(err)
	}
	var wishes []struct {
		Wish     string
		Accepted []string
	}
	if err := json.Unmarshal(data, &wishes); err != nil || len(wishes) != 60 {
		t.Fatal(len(wishes), err)
	}
	good, all := 0, 0
	for _, w := range wishes {
		var got, wrong []string
		for _, e := range recommend(w.Wish, Status{}, 3) {
			got = append(got, e.ID)
			if slices.Contains(w.Accepted, e.ID) {
				good++
			} else {
				wrong = append(wrong, e.ID)
			}
		}
		all += 3 // a missing recommendation counts as a wrong one
		if len(got) < 3 || wrong != nil {
			t.Logf("%s: %v; not accepted: %v", w.Wish, got, wrong)
		}
	}
	t.Logf("%d of %d", good, all)
	if good*5 < all*4 {
		t.Errorf("%d of %d are accepted; four of five are wanted", good, all)
	}
}

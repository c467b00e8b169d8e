package acceptance

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// pairwise returns rows with one level for each factor, levels[i] being how many factor i has, such that any two levels
// of any two factors stand together in a row. Each row begins with a pair that is still missing and takes, factor by
// factor, the level that adds most.
func pairwise(levels []int) (rows [][]int) {
	missing := map[[4]int]bool{} // factor, level, factor, level; the factors rise
	var order [][4]int           // a map's order is none
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
				for y := range levels[b] {
					missing[[4]int{a, x, b, y}] = true
					order = append(order, [4]int{a, x, b, y})
				}
			}
		}
	}
	for _, first := range order {
		if !missing[first] {
			continue
		}
		row := make([]int, len(levels))
		for i := range row {
			row[i] = -1
		}
		row[first[0]], row[first[2]] = first[1], first[3]
		for i := range row {
			if row[i] < 0 {
				row[i] = bestLevel(row, i, levels[i], missing, len(rows))
			}
		}
		for a := range row {
			for b := a + 1; b < len(row); b++ {
				delete(missing, [4]int{a, row[a], b, row[b]})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// bestLevel is the level of factor i that completes most missing pairs with what the row has. Among equals it goes round.
func bestLevel(row []int, i, levels int, missing map[[4]int]bool, turn int) (best int) {
	most := -1
	for k := range levels {
		level := (turn + k) % levels
		n := 0
		for j, other := range row {
			if other >= 0 && (j < i && missing[[4]int{j, other, i, level}] || j > i && missing[[4]int{i, level, j, other}]) {
				n++
			}
		}
		if n > most {
			most, best = n, level
		}
	}
	return best
}

func TestPairwise(t *testing.T) {
	for _, tt := range []struct {
		levels []int
		most   int // rows
	}{
		{nil, 0},
		{[]int{4}, 0},
		{[]int{3, 4}, 12},
		{[]int{2, 2, 2, 2, 2, 2}, 10},
		{[]int{2, 2, 2, 2, 2, 2, 5, 4, 2}, 26},
		{[]int{9, 5, 4}, 50},
	} {
		t.Run(fmt.Sprint(tt.levels), func(t *testing.T) {
			rows := pairwise(tt.levels)
			if len(rows) > tt.most {
				t.Errorf("got %d rows, want at most %d", len(rows), tt.most)
			}
			if pair, ok := missingPair(tt.levels, rows); ok {
				t.Errorf("no row has level %d of factor %d with level %d of factor %d", pair[1], pair[0], pair[3], pair[2])
			}
			for _, row := range rows {
				for i, level := range row {
					if level < 0 || level >= tt.levels[i] {
						t.Errorf("row %v: factor %d has levels 0 to %d", row, i, tt.levels[i]-1)
					}
				}
			}
			// The check can fail: a row that is needed is missed.
			if len(rows) > 0 {
				fewer := append([][]int{}, rows...)
				i := rand.New(rand.NewPCG(1, 2)).IntN(len(rows))
				fewer = append(fewer[:i], fewer[i+1:]...)
				if _, ok := missingPair(tt.levels, fewer); !ok && len(tt.levels) == 2 {
					t.Errorf("row %d is not needed", i)
				}
			}
		})
	}
}

// missingPair looks for a pair that no row has, the slow way.
func missingPair(levels []int, rows [][]int) (pair [4]int, ok bool) {
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
			levels:
				for y := range levels[b] {
					for _, row := range rows {
						if row[a] == x && row[b] == y {
							continue levels
						}
					}
					return [4]int{a, x, b, y}, true
				}
			}
		}
	}
	return pair, false
}

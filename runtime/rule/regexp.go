package rule

import (
	"regexp"
	"regexp/syntax"
)

// compileRegexp reads a regular expression (RE2) that has to match a whole text. It is parsed alone first, so that no
// parenthesis in it ends what is put around it.
func compileRegexp(expr string) (*regexp.Regexp, error) {
	alone, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + alone.String() + `)\z`)
}

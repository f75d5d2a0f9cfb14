//! Words with options.

use super::given;
use crate::cleaning::{PATTERNS, POLICIES, PatternSpec, PolicySpec, Shape};

/// Each row's defaults can be parsed, and its line reproduces it.
#[test]
fn defaults_are_good() {
    let shape = Shape { segments: 100, segments_used: 100, segment_blocks: 16, live_blocks: 1000, seed: 1 };
    for spec in POLICIES {
        let (_, options) = PolicySpec::parse(spec.name).expect("a policy");
        spec.make(&options, &shape).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(PolicySpec::parse(&options.line()).expect("its own line").1, options);
    }
    for spec in PATTERNS {
        let (_, options) = PatternSpec::parse(spec.name).expect("a pattern");
        spec.make(&options, &given(1000, 1)).map(|_| ()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(PatternSpec::parse(&options.line()).expect("its own line").1, options);
    }
}

/// Errors name what is near.
#[test]
fn errors_help() {
    let error = |line| PolicySpec::parse(line).map(|_| ()).expect_err("an error");
    assert_eq!(error("gredy"), "there is no policy `gredy`; did you mean `greedy`?");
    assert!(error("best").contains("there are: fifo, greedy"), "{}", error("best"));
    assert_eq!(error("greedy:d=1"), "greedy has no options");
    assert_eq!(error("d-choices:e=1"), "d-choices has no option `e`; did you mean `d`?");
    assert_eq!(error("d-choices:d"), "d-choices: `d`: write options as name=value");
    assert_eq!(error("d-choices:d=1,d=2"), "d-choices: d is given twice");
    let shape = Shape { segments: 100, segments_used: 100, segment_blocks: 16, live_blocks: 1000, seed: 1 };
    for line in ["d-choices:d=0", "d-choices:d=x", "cost-benefit:age=old", "lifetime:ratio=nan", "oracle:heads=300"] {
        let (spec, options) = PolicySpec::parse(line).expect("a policy");
        let error = spec.make(&options, &shape).map(|_| ()).expect_err(line);
        assert!(error.contains("write"), "{error}");
    }
    for line in ["zipf:skew=inf", "hot-and-cold:blocks=0", "files:mean=200", "files:sizes=odd", "exponential:mean=-1"] {
        let (spec, options) = PatternSpec::parse(line).expect("a pattern");
        assert!(spec.make(&options, &given(1000, 1)).is_err(), "{line}");
    }
}

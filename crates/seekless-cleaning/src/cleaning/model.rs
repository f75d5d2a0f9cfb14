//! Closed forms for uniform overwrites, against which the simulator is checked.

/// Utilisation of the segments that greedy or FIFO cleans, for uniform overwrites and large segments: the solution of
/// `u = exp(-(1 - u) / utilisation)` other than 1. A segment is cleaned when everything has been overwritten once around.
pub fn cleaned_utilisation(utilisation: f64) -> f64 {
    // The difference falls to a minimum and rises to 0 at 1; the other root is before the minimum.
    let difference = |u: f64| (-(1.0 - u) / utilisation).exp() - u;
    let (mut low, mut high) = (0.0, 1.0 + utilisation * utilisation.ln());
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        match difference(middle) > 0.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// Utilisation of the segments that greedy cleans, for uniform overwrites and many segments of `blocks` blocks each.
///
/// Segments lose their blocks at a rate in proportion to those that are left. So in the steady state `i f(i)` is the
/// same for all numbers of live blocks `i` above that at which segments are cleaned, where `f` is the share of segments.
pub fn greedy_utilisation(utilisation: f64, blocks: u32) -> f64 {
    let n = f64::from(blocks);
    // Of segments with between `m` and `blocks` live blocks: the mean, for i f(i) = constant, and a share `part` of what
    // is at `m` itself, so that the result is continuous.
    let mean = |m: u32, part: f64| {
        let mut shares = if m > 0 { part / f64::from(m) } else { 0.0 };
        let mut lives = if m > 0 { part } else { 0.0 };
        for live in m + 1..=blocks {
            shares += 1.0 / f64::from(live);
            lives += 1.0;
        }
        lives / shares
    };
    let wanted = utilisation * n;
    // The smallest m that leaves the mean above what is wanted.
    let (mut low, mut high) = (1, blocks);
    while low < high {
        let middle = (low + high) / 2;
        match mean(middle, 0.0) < wanted {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    let (mut part_low, mut part_high) = (0.0, 1.0);
    for _ in 0..60 {
        let part = (part_low + part_high) / 2.0;
        match mean(low, part) > wanted {
            true => part_low = part,
            false => part_high = part,
        }
    }
    // Segments reach `low` and wait there; a victim has one block less than those that wait, on average by the part.
    (f64::from(low) - part_low) / n
}

/// [ro92 §3.4, formula 1]: 1 for an empty segment, which is not read.
pub fn write_cost(cleaned_utilisation: f64) -> f64 {
    match cleaned_utilisation > 0.0 {
        true => 2.0 / (1.0 - cleaned_utilisation),
        false => 1.0,
    }
}

/// Blocks written for each block of the user, by the utilisation of cleaned segments.
pub fn write_amplification(cleaned_utilisation: f64) -> f64 {
    1.0 / (1.0 - cleaned_utilisation)
}

#[cfg(test)]
mod tests {
    use super::write_cost;

    /// Aim: formula 1 of [ro92 §3.4], with its case of its own. Method: an empty segment, which is not read, and two that are read whole.
    #[test]
    fn an_empty_segment_costs_no_reading() {
        for (utilisation, cost) in [(0.0, 1.0), (0.5, 4.0), (0.75, 8.0)] {
            assert_eq!(write_cost(utilisation), cost, "{utilisation}");
        }
    }
}

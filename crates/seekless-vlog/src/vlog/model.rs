//! The calculated cost of eager writing: the models of [wa99 §2] and its appendix.
//!
//! The formulas are images in the copy of the paper that was available, so each is derived again from its definition;
//! the tests compare them with random sampling and with the modelled disk. `n` is the number of sectors on a track, `p`
//! the share of them that is free.

/// Sectors that pass before a free one, on a single track: `(1 - p)n / (1 + pn)` [wa99 eq. 1].
///
/// With `k` free ones among `n`, `E(n, k) = (n - k)/n (1 + E(n - 1, k))`, which `(n - k)/(k + 1)` solves.
pub fn single_track(n: f64, p: f64) -> f64 {
    (1.0 - p) * n / (1.0 + p * n)
}

/// Sectors that pass before a free one on any of the `t` tracks of a cylinder, when another track is reached `s`
/// sectors later [wa99 eq. 2 to 4].
///
/// The nearer of two: on this track the wait is at least `j` with probability `(1 - p)^j`; on the `t - 1` others with
/// probability 1 up to `s` and `(1 - p)^((t - 1)(j - s))` beyond. The expected wait sums the product over `j` from 1
/// on.
pub fn cylinder(p: f64, t: f64, s: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    let used = 1.0 - p;
    let whole = s.floor();
    let here: f64 = (1..=whole as u64).map(|j| used.powi(j as i32)).sum();
    let both = used.powf(t);
    // For j > s: (1 - p)^j (1 - p)^((t - 1)(j - s)), a geometric series from the first j beyond s.
    let first = used.powf(whole + 1.0 + (t - 1.0) * (whole + 1.0 - s));
    here + first / (1.0 - both)
}

/// The same with `k` such drives that turn independently, where the soonest one is taken \[zh02\].
///
/// `j` sectors pass only if `j` pass on every drive, so the probability is that of one drive to the power of `k`.
pub fn arms(k: f64, p: f64, t: f64, s: f64) -> f64 {
    if p <= 0.0 {
        return f64::INFINITY;
    }
    let used = 1.0 - p;
    let passes = |j: u64| used.powf(j as f64 + (t - 1.0) * (j as f64 - s).max(0.0)).powf(k);
    (1..).map(passes).take_while(|&probability| probability > 1e-12).sum()
}

/// Sectors that pass while a logical block of `logical` sectors is written in physical blocks of `physical`, where
/// `physical <= logical` [wa99 eq. 9]. The minimum is where both are equal.
pub fn block(logical: f64, physical: f64, n: f64, p: f64) -> f64 {
    logical * (1.0 - p) * n / (physical + p * n)
}

/// Time per write of one sector when empty tracks are filled until `m` sectors are free, with `switch` for the next
/// track and `sector` for a sector to pass [wa99 eq. 13]; in the unit of these two.
///
/// While a track fills, a sector behind a used one is more likely to be taken, so free space is not random; the paper
/// adds an empirical term for that. Its constants are recalled, not read; the test states their error.
pub fn filling(n: f64, m: f64, switch: f64, sector: f64) -> f64 {
    let p = 1.0 + n / 36.0;
    let crowding = (n - m - 0.5).powf(p + 2.0) / ((8.0 - n / 96.0) * (p + 2.0) * n.powf(p));
    let skipped = (n + 1.0) * ((n + 2.0) / (m + 2.0)).ln() - (n - m);
    (switch + sector * (skipped + crowding)) / (n - m)
}

/// The same without the empirical term [wa99 eq. 11].
pub fn filling_at_random(n: u64, m: u64, switch: f64, sector: f64) -> f64 {
    let skipped: f64 = (m + 1..=n).map(|free| (n - free) as f64 / (1 + free) as f64).sum();
    (switch + sector * skipped) / (n - m) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// `count` of `n` places free, chosen at random.
    fn places(rng: &mut Rng, n: usize, count: usize) -> Vec<bool> {
        let mut places: Vec<bool> = (0..n).map(|place| place < count).collect();
        rng.shuffle(&mut places);
        places
    }

    fn skipped(free: &[bool], from: usize) -> usize {
        (0..free.len()).find(|step| free[(from + step) % free.len()]).expect("something is free")
    }

    /// Aim: eq. 1 is right, and the paper's example (four sectors at 80 %) follows. Method: as many random samples as
    /// bring the standard error to 2 % of the mean; three standard errors are allowed.
    #[test]
    fn single_tracks_are_as_drawn() {
        let mut rng = Rng::new(1);
        for n in [72, 256] {
            for free in [50, 20, 10, 5] {
                let count = n * free / 100;
                let drawn: usize = (0..6000)
                    .map(|_| {
                        let places = places(&mut rng, n, count);
                        skipped(&places, rng.below(n as u64) as usize)
                    })
                    .sum();
                let (drawn, model) = (drawn as f64 / 6000.0, single_track(n as f64, count as f64 / n as f64));
                assert!((drawn / model - 1.0).abs() < 0.06, "{n} sectors, {free} % free: {drawn} drawn, {model}");
            }
        }
        assert!((single_track(256.0, 0.2) - 4.0).abs() < 0.1); // [wa99 §2.1]
    }

    /// Aim: eq. 2 is right for many tracks. Method: random samples, with the figures of both drives of [wa99]. The
    /// model's tracks are endless, so for the fullest case the model is some per cent above the samples.
    #[test]
    fn cylinders_are_as_drawn() {
        let mut rng = Rng::new(2);
        // Tracks, sectors, and the head switch in sectors: 2.5 ms of 15, and 0.5 ms of 6.
        for (t, n, s) in [(19, 72, 12.0), (16, 256, 21.3)] {
            for free in [50, 20, 10] {
                let mut total = 0.0;
                for _ in 0..1500 {
                    let other = f64::ceil(s) as usize;
                    let here = skipped(&places(&mut rng, n, n * free / 100), 0);
                    let there = (1..t).map(|_| skipped(&places(&mut rng, n, n * free / 100), 0) + other).min();
                    total += here.min(there.expect("other tracks")) as f64;
                }
                let (drawn, model) = (total / 1500.0, cylinder(free as f64 / 100.0, t as f64, f64::ceil(s)));
                assert!((drawn / model - 1.0).abs() < 0.12, "{t} tracks, {free} % free: {drawn} drawn, {model}");
            }
        }
    }

    /// Aim: the fastest physical block is the logical one. Method: the formula, for all sizes that divide it.
    #[test]
    fn large_physical_blocks_are_best() {
        for (n, p) in [(72.0, 0.2), (256.0, 0.1), (256.0, 0.5)] {
            let times: Vec<f64> = [1.0, 2.0, 4.0, 8.0].map(|physical| block(8.0, physical, n, p)).to_vec();
            assert!(times.is_sorted_by(|one, two| one > two), "{times:?}");
        }
    }

    /// Milliseconds per write when a track is filled until `m` of `n` sectors are free, with writes at random moments.
    fn fill(rng: &mut Rng, n: usize, m: usize, switch: f64, sector: f64) -> f64 {
        let rounds = 200;
        let mut time = 0.0;
        for _ in 0..rounds {
            let mut free = vec![true; n];
            time += switch;
            for _ in m..n {
                let from = rng.below(n as u64) as usize;
                let step = skipped(&free, from);
                free[(from + step) % n] = false;
                time += sector * step as f64;
            }
        }
        time / (rounds * (n - m)) as f64
    }

    /// Aim: the error of the compactor's model with the recalled constants. Method: random samples. The paper gives no
    /// error; 20 % is the largest found over all thresholds, and without the empirical term it is much larger.
    #[test]
    fn filling_is_as_drawn() {
        let mut rng = Rng::new(3);
        for (n, switch, turn) in [(72, 2.5, 60_000.0 / 4002.0), (256, 0.5, 6.0)] {
            let sector = turn / n as f64;
            let mut worst: f64 = 0.0;
            let mut worst_at_random: f64 = 0.0;
            for kept in [10, 25, 40, 50, 60, 70, 90] {
                let m = n * kept / 100;
                let drawn = fill(&mut rng, n, m, switch, sector);
                let model = filling(n as f64, m as f64, switch, sector);
                let plain = filling_at_random(n as u64, m as u64, switch, sector);
                worst = worst.max((model / drawn - 1.0).abs());
                worst_at_random = worst_at_random.max((plain / drawn - 1.0).abs());
            }
            assert!(worst < 0.20, "{n} sectors: {worst}");
            assert!(worst_at_random > 0.3, "{n} sectors: {worst_at_random}");
        }
    }
}

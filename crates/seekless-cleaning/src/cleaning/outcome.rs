//! What a simulation measured.

/// Counters of a stretch of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Blocks that the user wrote.
    pub user: u64,
    /// Live blocks that the cleaner wrote again.
    pub moved: u64,
    /// Segments that were cleaned, and those of them that were empty.
    pub cleaned: u64,
    pub cleaned_empty: u64,
    pub passes: u64,
    /// Blocks that went to another head than the policy said, because no segment was clean.
    pub diverted: u64,
    /// Victims that the policy did not choose: it had found nothing that makes room.
    pub rescued: u64,
}

/// The result of [`simulate`](super::simulate).
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub counts: Counts,
    /// The first half of the measured stretch: where it differs from the whole, the result is not yet steady.
    pub first_half: Counts,
    pub segment_blocks: u32,
    pub segments: u32,
    /// Live data at the end as a share of all segments, open and clean ones included.
    pub utilisation: f64,
    /// Closed segments by their live blocks, summed over the moments at which cleaning began [ro92 Figures 5 and 6].
    pub segments_by_live: Vec<u64>,
    /// Cleaned segments by their live blocks.
    pub cleaned_by_live: Vec<u64>,
    /// Blocks written by each head.
    pub heads: Vec<u64>,
}

impl Counts {
    /// Blocks written to the log for each block of the user.
    pub fn write_amplification(&self) -> f64 {
        (self.user + self.moved) as f64 / self.user as f64
    }

    /// Blocks read and written for each block of the user. Victims are read whole, unless they are empty [ro92 §3.4].
    pub fn write_cost(&self, segment_blocks: u32) -> f64 {
        let read = (self.cleaned - self.cleaned_empty) * u64::from(segment_blocks);
        (self.user + self.moved + read) as f64 / self.user as f64
    }

    pub(super) fn since(&self, start: &Counts) -> Counts {
        Counts {
            user: self.user - start.user,
            moved: self.moved - start.moved,
            cleaned: self.cleaned - start.cleaned,
            cleaned_empty: self.cleaned_empty - start.cleaned_empty,
            passes: self.passes - start.passes,
            diverted: self.diverted - start.diverted,
            rescued: self.rescued - start.rescued,
        }
    }
}

impl Outcome {
    pub fn write_amplification(&self) -> f64 {
        self.counts.write_amplification()
    }

    pub fn write_cost(&self) -> f64 {
        self.counts.write_cost(self.segment_blocks)
    }

    /// Write amplification of the second half over that of the first, less one.
    pub fn drift(&self) -> f64 {
        let second = self.counts.since(&self.first_half);
        second.write_amplification() / self.first_half.write_amplification() - 1.0
    }

    /// Utilisation of the segments that were cleaned, empty ones included.
    pub fn cleaned_utilisation(&self) -> f64 {
        self.counts.moved as f64 / (self.counts.cleaned as f64 * f64::from(self.segment_blocks))
    }

    /// Utilisation of the segments that were cleaned and not empty.
    pub fn cleaned_utilisation_of_used(&self) -> f64 {
        let used = self.counts.cleaned - self.counts.cleaned_empty;
        self.counts.moved as f64 / (used as f64 * f64::from(self.segment_blocks))
    }

    /// Share of the cleaned segments that were empty.
    pub fn cleaned_empty_share(&self) -> f64 {
        self.counts.cleaned_empty as f64 / self.counts.cleaned as f64
    }
}

/// Counts by live blocks as shares in `bins` bins of equal width; a full segment is in the last.
pub fn shares(by_live: &[u64], bins: usize) -> Vec<f64> {
    let all: u64 = by_live.iter().sum();
    let blocks = by_live.len().saturating_sub(1).max(1);
    let mut shares = vec![0.0; bins];
    for (live, count) in by_live.iter().enumerate() {
        shares[(live * bins / blocks).min(bins - 1)] += *count as f64 / all.max(1) as f64;
    }
    shares
}

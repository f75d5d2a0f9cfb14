//! The moment as text, whatever the system's clock says.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The time now in UTC as RFC 3339 writes it, with milliseconds.
pub(super) fn now() -> String {
    text(SystemTime::now())
}

/// Times beyond the years -9999 to 9999, which the library does not have, are seconds since 1970 behind an `@`, as date(1) reads
/// them.
fn text(time: SystemTime) -> String {
    if let Ok(time) = Timestamp::try_from(time) {
        return format!("{time:.3}");
    }
    let (sign, distance) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ("", after),
        Err(before) => ("-", before.duration()),
    };
    format!("@{sign}{}.{:03}", distance.as_secs(), distance.subsec_millis())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Every time that a clock can show has a text.
    #[test]
    fn every_clock_has_a_text() {
        let after = |seconds: u64| text(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 250));
        let before = |seconds: u64| text(UNIX_EPOCH - Duration::from_millis(seconds * 1000 + 250));
        assert_eq!(after(0), "1970-01-01T00:00:00.250Z");
        assert_eq!(after(253_402_128_000), "9999-12-30T00:00:00.250Z");
        assert_eq!(after(253_402_300_800), "@253402300800.250");
        assert_eq!(before(1), "1969-12-31T23:59:58.750Z");
        assert_eq!(before(62_167_219_200), "-000001-12-31T23:59:59.750Z");
        assert_eq!(before(377_705_116_800), "@-377705116800.250");
        let last = UNIX_EPOCH.checked_add(Duration::from_secs(i64::MAX as u64)).unwrap();
        let first = UNIX_EPOCH.checked_sub(Duration::from_secs(i64::MAX as u64)).unwrap();
        assert_eq!((text(last), text(first)), (format!("@{}.000", i64::MAX), format!("@-{}.000", i64::MAX)));
    }
}

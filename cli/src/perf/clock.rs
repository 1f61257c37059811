//! The time of day as people write it, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as `2026-11-30 12:34:56`.
pub fn now() -> String {
    format(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs()))
}

/// This many seconds after the beginning of 1970.
fn format(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

/// Year, month and day, so many days after the beginning of 1970. Years begin in March here, so that the leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_799, "2024-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (1_796_083_200, "2026-12-01 00:00:00"),
        ] {
            assert_eq!(format(seconds), text);
        }
    }
}

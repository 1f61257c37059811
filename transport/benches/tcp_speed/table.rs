//! Medians and ratios of contenders, by size.

use std::collections::BTreeMap;

/// Whose figure it is.
#[derive(Clone, Copy, Debug)]
pub enum Column {
    /// Ours, by number.
    Ours(usize),
    /// A peer's, by name.
    Peer(&'static str),
}

/// Microseconds per message of every round, by contender and size.
pub struct Table {
    title: &'static str,
    ours: Vec<&'static str>,
    /// Which of ours each peer is compared with.
    peers: Vec<(usize, &'static str)>,
    /// Print MB/s of messages of this size, or of the row's.
    rate: Option<Option<usize>>,
    figures: BTreeMap<(usize, String), Vec<Option<f64>>>,
}

impl Table {
    pub fn new(title: &'static str, ours: &[&'static str]) -> Self {
        Self { title, ours: ours.to_vec(), peers: Vec::new(), rate: None, figures: BTreeMap::new() }
    }

    pub fn in_rates(self) -> Self {
        Self { rate: Some(None), ..self }
    }

    pub fn in_rates_of(self, bytes: usize) -> Self {
        Self { rate: Some(Some(bytes)), ..self }
    }

    pub fn against(&mut self, ours: usize, peers: &[&'static str]) {
        self.peers.extend(peers.iter().map(|peer| (ours, *peer)));
    }

    pub fn add(&mut self, row: usize, column: Column, microseconds: Option<f64>) {
        self.figures.entry((row, self.name(column).to_owned())).or_default().push(microseconds);
    }

    fn name(&self, column: Column) -> &'static str {
        match column {
            Column::Ours(index) => self.ours[index],
            Column::Peer(name) => name,
        }
    }

    fn rounds(&self, row: usize, name: &str) -> &[Option<f64>] {
        self.figures.get(&(row, name.to_owned())).map_or(&[], Vec::as_slice)
    }

    fn shown(&self, row: usize, name: &str) -> String {
        let Some(time) = median(self.rounds(row, name).iter().flatten().copied().collect()) else { return "-".into() };
        match self.rate {
            None => format!("{time:.2}"),
            Some(bytes) => format!("{:.0}", bytes.unwrap_or(row) as f64 / time),
        }
    }

    /// Time over time, the median of the rounds that both have.
    fn ratio(&self, row: usize, ours: &str, peer: &str) -> Option<f64> {
        let pairs = self.rounds(row, ours).iter().zip(self.rounds(row, peer));
        median(pairs.filter_map(|(ours, peer)| Some((*ours)? / (*peer)?)).collect())
    }

    pub fn print(&self) {
        println!("\n**{}**\n", self.title);
        let peers = self.peers.iter().map(|(_, peer)| format!(" {peer} | ratio |"));
        println!(
            "| |{}{}",
            self.ours.iter().map(|ours| format!(" {ours} |")).collect::<String>(),
            peers.collect::<String>()
        );
        println!("|{}", "---|".repeat(1 + self.ours.len() + 2 * self.peers.len()));
        let mut rows: Vec<_> = self.figures.keys().map(|(row, _)| *row).collect();
        rows.dedup();
        for row in rows {
            let ours: String = self.ours.iter().map(|name| format!(" {} |", self.shown(row, name))).collect();
            let peer = |(ours, peer): &(usize, &'static str)| {
                let ratio = self.ratio(row, self.ours[*ours], peer).map_or("-".into(), |ratio| format!("{ratio:.2}"));
                format!(" {} | {ratio} |", self.shown(row, peer))
            };
            println!("| {} |{ours}{}", size(row), self.peers.iter().map(peer).collect::<String>());
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..16 => format!("{bytes}"),
        16..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

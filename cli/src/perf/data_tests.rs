//! The check finds what is wrong, and nothing else, for every collective: judged against calls done by hand.

use super::*;

const RANKS: u32 = 3;

fn case(benchmark: Benchmark, rank: u32) -> Case {
    let op = benchmark.reduces().then_some(ReduceOp::Sum);
    Case { benchmark, datatype: DataType::I32, op, root: 1, count: 5, rank, ranks: RANKS, registered: false }
}

/// Every rank's prepared input.
fn inputs(benchmark: Benchmark) -> Vec<Vec<u8>> {
    (0..RANKS)
        .map(|rank| {
            let case = case(benchmark, rank);
            let (input, output) = case.bytes().unwrap();
            let (mut input, mut output) = (vec![0; input], vec![0; output]);
            case.prepare(&mut Lent::Apart(&mut input, &mut output));
            assert!(output.iter().all(|&byte| byte == POISON));
            input
        })
        .collect()
}

/// The call, done by hand: `rank`'s output.
fn by_hand(benchmark: Benchmark, rank: usize, inputs: &[Vec<u8>]) -> Vec<u8> {
    let block = 5 * 4;
    let sum = |from: usize, bytes: usize| -> Vec<u8> {
        let element = |input: &[u8], at: usize| i32::from_le_bytes(input[at..at + 4].try_into().unwrap());
        (from..from + bytes)
            .step_by(4)
            .flat_map(|at| inputs.iter().map(|input| element(input, at)).fold(0, i32::wrapping_add).to_le_bytes())
            .collect()
    };
    match benchmark {
        Benchmark::AllReduce | Benchmark::Reduce => sum(0, block),
        Benchmark::ReduceScatter => sum(rank * block, block),
        Benchmark::AllGather => inputs.concat(),
        Benchmark::AllToAll => inputs.iter().flat_map(|input| input[rank * block..][..block].to_vec()).collect(),
        Benchmark::Broadcast => inputs[1].clone(),
        Benchmark::SendRecv => inputs[(rank + 2) % 3].clone(),
        Benchmark::Barrier => vec![],
    }
}

#[test]
fn right_outputs_pass_and_one_damaged_element_is_found() {
    for benchmark in Benchmark::ALL {
        let inputs = inputs(benchmark);
        for rank in 0..RANKS {
            let case = case(benchmark, rank);
            let mut output = by_hand(benchmark, rank as usize, &inputs);
            let mut lent = Lent::Apart(&mut [], &mut output);
            assert_eq!(case.wrong(&mut lent), 0, "{benchmark} {rank}");
            if case.has_output() && benchmark != Benchmark::Barrier {
                case.damage(&mut lent);
                assert_eq!(case.wrong(&mut lent), 1, "{benchmark} {rank}");
            }
        }
    }
}

#[test]
fn poison_is_wrong_everywhere() {
    for benchmark in Benchmark::ALL {
        let case = case(benchmark, 1);
        let bytes = case.bytes().unwrap().1;
        let mut output = vec![POISON; bytes];
        assert_eq!(case.wrong(&mut Lent::Apart(&mut [], &mut output)), bytes as u64 / 4, "{benchmark}");
    }
}

#[test]
fn in_place_the_input_lies_where_the_collective_wants_it() {
    for benchmark in Benchmark::ALL.into_iter().filter(|benchmark| benchmark.can_be_in_place()) {
        let inputs = inputs(benchmark);
        for rank in 0..RANKS {
            let case = case(benchmark, rank);
            let (input, output) = case.bytes().unwrap();
            let mut both = vec![0; input.max(output)];
            case.prepare(&mut Lent::InPlace(&mut both));
            let at = if benchmark == Benchmark::AllGather { rank as usize * input } else { 0 };
            if benchmark != Benchmark::Broadcast || rank == case.root {
                assert_eq!(both[at..][..input], inputs[rank as usize], "{benchmark} {rank}");
            }
        }
    }
}

#[test]
fn only_the_root_checks_a_reduce() {
    assert!(!case(Benchmark::Reduce, 0).has_output());
    assert!(case(Benchmark::Reduce, 1).has_output());
    assert!(!Case { count: 0, ..case(Benchmark::AllReduce, 0) }.has_output());
}

#[test]
fn sizes_beyond_the_address_space_are_noticed() {
    let huge = Case { count: usize::MAX / 4, ..case(Benchmark::AllGather, 0) };
    assert_eq!(huge.bytes(), None);
}

#[test]
fn long_blocks_are_compared_in_pieces() {
    let long = Case { count: PIECE / 4 + 3, ..case(Benchmark::Broadcast, 1) };
    let (input, output) = long.bytes().unwrap();
    let (mut input, mut output) = (vec![0; input], vec![0; output]);
    long.prepare(&mut Lent::Apart(&mut input, &mut output));
    let mut lent = Lent::Apart(&mut [], &mut input);
    assert_eq!(long.wrong(&mut lent), 0);
    if let Lent::Apart(_, output) = &mut lent {
        *output.last_mut().unwrap() ^= 0x40;
    }
    assert_eq!(long.wrong(&mut lent), 1);
}

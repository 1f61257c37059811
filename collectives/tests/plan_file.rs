//! Plan files: what is written can be read, and what cannot be read is explained.

use proptest::prelude::*;
use vervain_collectives::Collective;
use vervain_collectives::plan::{
    Algorithm, Comparison, Condition, Expr, Instruction, Operand, Operator, Plan, Statement,
};
use vervain_collectives::plan::{Buffer, builders, fuzzing};

fn built() -> impl Iterator<Item = Plan> {
    let all = Collective::ALL.iter().flat_map(|&c| Algorithm::ALL.iter().map(move |&a| (c, a)));
    all.filter_map(|(collective, algorithm)| builders::plan(collective, algorithm))
}

#[test]
fn every_builder_round_trips() {
    for plan in built() {
        let again = Plan::from_json(&plan.to_json()).unwrap_or_else(|defect| panic!("{defect}\n{}", plan.to_json()));
        assert_eq!(again, plan);
        assert_eq!(again.hash(), plan.hash());
    }
}

#[test]
fn no_two_builders_have_one_hash() {
    let mut hashes: Vec<_> = built().map(|plan| plan.hash()).collect();
    let all = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), all);
}

#[test]
fn the_hash_is_the_same_on_every_machine() {
    let ring = builders::plan(Collective::AllReduce, Algorithm::Ring).unwrap();
    assert_eq!(format!("{:016x}", ring.hash()), RING);
}

/// A change of this number is a change of the canonical bytes: give them another version.
const RING: &str = "65f3b86b102d13f7";

const GOOD: &str = r#"{"vervain_plan": 1, "name": "n", "collective": "broadcast", "chunks": 1, "scratch": "0", "lanes": [[
    {"when": "rank == root", "then": [{"do": "copy", "from": [{"buffer": "input", "chunk": 0}], "to": [{"buffer": "output", "chunk": 0}]}]}
]]}"#;

#[test]
fn wrong_files_are_explained_with_their_path() {
    assert!(Plan::from_json(GOOD).is_ok());
    for (from, to, explanation) in [
        ("\"vervain_plan\": 1", "\"vervain_plan\": 2", "vervain_plan: version 2 is not known; this release reads 1"),
        ("\"chunks\": 1,", "", "\"chunks\" is missing"),
        ("\"chunks\": 1", "\"chunks\": 1.5", "chunks: expected a string, found 1.5"),
        ("broadcast", "sing", "collective: \"sing\" is no collective"),
        ("rank == root", "rank == ", "lanes[0][0].when: expected a number"),
        ("\"input\"", "\"inputs\"", "lanes[0][0].then[0].from[0].buffer: \"inputs\" is no buffer"),
        ("\"copy\"", "\"send\"", "lanes[0][0].then[0].do: \"send\" does not fit its operands, which make it \"copy\""),
        ("\"copy\",", "\"copy\", \"x\": 1,", "lanes[0][0].then[0].x: is not known here"),
        ("\"lanes\": [[", "\"lanes\": {}, \"more\": [[", "lanes: expected a list, found {}"),
        ("]}\n]]}", "]}\n]]", "no JSON"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let defect = Plan::from_json(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(defect.contains(explanation), "{defect:?} does not contain {explanation:?}");
    }
}

#[test]
fn hostile_files_are_refused() {
    let lane = |lane: &str| GOOD.replace("[[", &format!("[[{lane},"));
    let nested = "{\"for\": \"i0\", \"below\": 1, \"body\": [".repeat(20) + &"]}".repeat(20);
    assert!(Plan::from_json(&lane(&nested)).unwrap_err().to_string().contains("nested"));
    assert!(Plan::from_json(&"[".repeat(100_000)).is_err());
    assert!(Plan::from_json(&" ".repeat(2 << 20)).unwrap_err().to_string().contains("the limit is"));
    assert!(Plan::from_json("").is_err());
}

#[test]
fn damaged_files_never_panic() {
    for plan in built() {
        let text = plan.to_json().into_bytes();
        for position in (0..text.len()).step_by(7) {
            let mut damaged = text.clone();
            damaged[position] = b"0i\"[}-"[position % 6];
            fuzzing::plan_json(&damaged);
            fuzzing::plan_json(&text[..position]);
        }
    }
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Expr::Constant),
        Just(Expr::Rank),
        Just(Expr::Ranks),
        Just(Expr::Root),
        any::<u32>().prop_map(Expr::Variable),
    ];
    let operators =
        [Operator::Add, Operator::Sub, Operator::Mul, Operator::Div, Operator::Mod, Operator::Min, Operator::Max];
    leaf.prop_recursive(4, 16, 2, move |inner| {
        (prop::sample::select(operators.to_vec()), inner.clone(), inner)
            .prop_map(|(operator, left, right)| Expr::Binary(operator, Box::new(left), Box::new(right)))
    })
}

fn operand() -> impl Strategy<Value = Operand> {
    let buffer = prop::sample::select(vec![Buffer::Input, Buffer::Output, Buffer::Scratch]);
    let leaf = prop_oneof![
        (buffer.clone(), expr()).prop_map(|(buffer, chunk)| Operand::Local { buffer, chunk }),
        (expr(), buffer, expr()).prop_map(|(rank, buffer, chunk)| Operand::Direct { rank, buffer, chunk }),
        expr().prop_map(|peer| Operand::Connection { peer }),
    ];
    leaf.prop_recursive(3, 4, 1, |inner| {
        (any::<u32>(), expr(), inner).prop_map(|(variable, count, operand)| Operand::Each {
            variable,
            count,
            operand: Box::new(operand),
        })
    })
}

fn statement() -> impl Strategy<Value = Statement> {
    let operands = || prop::collection::vec(operand(), 0..4);
    let comparisons = vec![Comparison::Is, Comparison::IsNot, Comparison::Below, Comparison::AtLeast];
    let leaf = prop_oneof![
        (operands(), operands(), any::<bool>()).prop_map(|(sources, destinations, complete)| Instruction::Move {
            sources,
            destinations,
            complete
        }),
        Just(Instruction::Enter),
        Just(Instruction::Leave),
        expr().prop_map(|peer| Instruction::Signal { peer }),
        expr().prop_map(|peer| Instruction::Wait { peer }),
    ];
    leaf.prop_map(Statement::Instruction).prop_recursive(3, 12, 3, move |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..3);
        let condition = (expr(), prop::sample::select(comparisons.clone()), expr())
            .prop_map(|(left, comparison, right)| Condition { left, comparison, right });
        prop_oneof![
            (any::<u32>(), expr(), body()).prop_map(|(variable, count, body)| Statement::For { variable, count, body }),
            (condition, body(), body()).prop_map(|(condition, then, otherwise)| Statement::When {
                condition,
                then,
                otherwise
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_plan_round_trips(
        name in "\\PC{0,20}",
        collective in prop::sample::select(Collective::ALL),
        chunks in expr(),
        lanes in prop::collection::vec(prop::collection::vec(statement(), 0..4), 1..3),
    ) {
        let plan = Plan { name, collective, chunks, scratch: Expr::Constant(0), lanes };
        let again = Plan::from_json(&plan.to_json());
        prop_assert_eq!(again.as_ref(), Ok(&plan), "{}", plan.to_json());
        prop_assert_eq!(again.map(|plan| plan.hash()), Ok(plan.hash()));
        prop_assert!(plan.to_string().contains("lane 0"));
    }
}

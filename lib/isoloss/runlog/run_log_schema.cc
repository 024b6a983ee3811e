// The groups of a run log: one row for each step, evaluation or event.
#include <cstdint>

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

Columns StepList() {
  using C = StepColumns;
  using R = StepRow;
  return {
      {{"step", "step", "Number of the optimizer step, from 1", Domain::Step()},
       &C::step,
       &R::step},
      {{"tokens_seen", "token", "Tokens trained on after this step",
        Domain::Count(1).With(Relation::kTokensSeen)},
       &C::tokens_seen,
       &R::tokens_seen},
      {Field{"loss_nats", "nat",
             "Mean training loss over the step's labels, before its update",
             Domain::Positive(kMostFp32)}
           .At(Turn::kLoss),
       &C::loss_nats, &R::loss_nats},
      {Field{"grad_norm", "1", "Global L2 norm of the gradient before clipping",
             Domain::Norm().With(Relation::kNorms)}
           .At(Turn::kGradient),
       &C::grad_norm, &R::grad_norm},
      {{"lr", "1", "Learning rate of the update", Domain::Real(0, 1)},
       &C::lr,
       &R::lr},
      {{"step_seconds", "s", "Wall-clock time of the step",
        Domain::Seconds().With(Relation::kThroughput), 1, false},
       &C::step_seconds,
       &R::step_seconds},
      {{"tokens_per_second", "token/s", "Tokens of the step over its time",
        Domain::Real(0).With(Relation::kThroughput), 1, false},
       &C::tokens_per_second,
       &R::tokens_per_second},
      {{"expert_load_max_over_mean", "1",
        "Busiest expert's tokens over the mean, in the worst MoE layer",
        Domain::Real(1).OrNan().With(Relation::kLoad)},
       &C::expert_load_max_over_mean,
       &R::expert_load_max_over_mean},
      {{"dead_experts", "expert",
        "Experts without a token, summed over MoE layers",
        Domain::Count().With(Relation::kDeadExperts)},
       &C::dead_experts,
       &R::dead_experts},
      {{"quantized_gemms", "call",
        "GEMM calls with a quantised operand that were executed; what "
        "processes repeat counts once",
        Domain::Count()},
       &C::quantized_gemms,
       &R::quantized_gemms},
      {{"nonfinite_gradients", "1",
        "Gradient elements that are NaN or infinite, of all parameters",
        Domain::Zero(), 3},
       &C::nonfinite_gradients,
       &R::nonfinite_gradients},
      {{"batch_digest", "1",
        "Digest of the step's tokens and labels: equal data, equal digest",
        Domain::Digest(), 4},
       &C::batch_digest,
       &R::batch_digest},
  };
}

Columns EvalList() {
  using C = EvalColumns;
  return {
      {{"step", "step", "Updates made before it; 0: before the first one",
        Domain::Step(0).With(Relation::kEvaluations)},
       &C::step},
      {Field{"loss_nats", "nat", "Mean over sequences of equal length",
             Domain::Positive(kMostFp32).With(Relation::kEvaluationMean)}
           .At(Turn::kLoss)
           .Shown("held-out loss_nats"),
       &C::loss_nats},
      {Field{"per_sequence_loss_nats", "nat",
             "Mean loss of each held-out sequence",
             Domain::Positive(kMostFp32).With(Relation::kEvaluationMean)}
           .Shown("loss_nats"),
       &C::per_sequence_loss_nats,
       {{"sequences", &C::sequences}}},
  };
}

/// The index of a group that has a row for every step, or for some.
Field StepIndex(Relation relation) {
  return {"step", "step", "Number of the optimizer step, from 1",
          Domain::Step().With(relation)};
}

Columns ParameterList() {
  using C = ParameterColumns;
  const Axis parameters("parameters", &C::count);
  return {
      {StepIndex(Relation::kStepRows), &C::step},
      Column::Labels(
          {"names", "", "Parameters, torchtitan's names", Domain::Text()},
          &C::names, parameters),
      {Field{"grad_norm", "1", "L2 norm of the gradient before clipping",
             Domain::Norm().With(Relation::kNorms)}
           .At(Turn::kGradients),
       &C::grad_norm,
       {parameters}},
      {Field{"update_ratio", "1",
             "L2 norm of the update over that of the weights before",
             Domain::Ratio()}
           .At(Turn::kUpdates),
       &C::update_ratio,
       {parameters}},
  };
}

Columns TensorList() {
  using C = TensorColumns;
  const Axis tensors("tensors", &C::count);
  const Axis bytes("bytes", &C::scale_bytes);
  Columns columns = {
      {StepIndex(Relation::kSomeSteps).Only(When::kTensors), &C::step},
      Column::Labels({"names", "", "<module>_<tensor>", Domain::Text()},
                     &C::names, tensors),
      {Field{"digest", "1",
             "Digest of the content; 0 at a step without digests",
             Domain::Whole().With(Relation::kDigests)}
           .Only(When::kDigests)
           .At(Turn::kDigest),
       &C::digest,
       {tensors}},
  };
  for (size_t i = 0; i < kTensorStatisticCount; ++i) {
    const TensorStatistic& s = kTensorStatistics[i];
    Column& column =
        columns.emplace_back(Field{s.name, s.unit, s.description, s.domain}
                                 .Only(When::kStatistics)
                                 .At(s.turn, s.scale),
                             &C::statistics);
    column.role = Role::kRows;
    column.type = ValueType::kDouble;
    column.offset += i * sizeof(std::vector<double>);
    column.axes = {tensors};
  }
  const auto histogram = [&](const char* name, const char* description,
                             std::vector<int32_t> C::*values) {
    columns.emplace_back(Field{name, "block", description,
                               Domain::Count().With(Relation::kScales)}
                             .Only(When::kStatistics),
                         values, std::vector{tensors, bytes});
  };
  histogram("e8m0_histogram", "Blocks along rows with each E8M0 byte",
            &C::e8m0_histogram);
  histogram("e8m0_histogram_columnwise",
            "Blocks down columns with each E8M0 byte",
            &C::e8m0_histogram_columnwise);
  return columns;
}

Columns MoeList() {
  using C = MoeColumns;
  const Axis layers("layers", &C::layers);
  const Axis experts("experts", &C::experts);
  const auto of = [](const Field& field, auto values, std::vector<Axis> axes) {
    return Column(field.Only(When::kExperts), values, std::move(axes));
  };
  return {
      {StepIndex(Relation::kStepRows).Only(When::kExperts), &C::step},
      of({"tokens_per_expert", "token", "Tokens that chose the expert",
          Domain::Count()
              .With(Relation::kRouted)
              .With(Relation::kLoad)
              .With(Relation::kDeadExperts)
              .With(Relation::kExpertIds)
              .With(Relation::kAssignments)
              .With(Relation::kBusiest)},
         &C::tokens_per_expert, {layers, experts}),
      of(Field{"expert_bias", "1",
               "Bias of the expert's score after the step's update",
               Domain::Fp32()}
             .At(Turn::kBias, Scale::kRow),
         &C::expert_bias, {layers, experts}),
      // No exchange of this program has a capacity that could drop any.
      of({"dropped_tokens", "token", "(token, slot) pairs without an expert",
          Domain::Count().With(Relation::kRouted).With(Relation::kDropped)},
         &C::dropped_tokens, {layers}),
      of(Field{"padding_rows", "row",
               "Zero rows that fill up the experts' lists", Domain::Count()}
             .On(Scope::kMesh),
         &C::padding_rows, {layers}),
      {Field{"expert_ids", "1", "Experts of each token in slot order",
             Domain::Count().With(Relation::kExpertIds)}
           .Only(When::kRouting)
           .On(Scope::kSlots),
       &C::expert_ids,
       {layers, {"tokens", &C::tokens}, {"slots", &C::top_k}}},
      of({"router_entropy", "nat",
          "Mean over tokens of the entropy of the scores over their sum",
          Domain::Real(0).With(Relation::kEntropy), 3},
         &C::router_entropy, {layers}),
      of(Field{"routing_digest", "1",
               "Digest of who chose whom: equal routing, equal digest",
               Domain::Digest(), 3}
             .At(Turn::kRouting),
         &C::routing_digest, {layers}),
      {Field{"routing_flips", "1",
             "Replayed (token, slot) pairs whose expert the router "
             "would not have chosen",
             Domain::Count().With(Relation::kFlips), 3}
           .Only(When::kReplay),
       &C::routing_flips,
       {layers}},
  };
}

Columns ExchangeList() {
  using C = ExchangeColumns;
  const Axis ranks("ranks", &C::ranks);
  const Axis layers("layers", &C::layers);
  const auto of = [](const char* name, const char* unit,
                     const char* description, const Domain& domain, auto values,
                     std::vector<Axis> axes, bool reproducible = true) {
    return Column(Field{name, unit, description, domain, 1, reproducible}
                      .Only(When::kTransport)
                      .On(Scope::kMesh),
                  values, std::move(axes));
  };
  const Domain parts = Domain::Count().With(Relation::kBytes);
  const Domain bytes = parts.With(Relation::kPairs);
  const Domain rows = Domain::Count().With(Relation::kRowOrder);
  const Domain busiest = Domain::Count().With(Relation::kBusiest);
  return {
      {StepIndex(Relation::kStepRows).Only(When::kTransport), &C::step},
      of("bytes_sent", "byte", "Bytes the rank sent, to itself too", bytes,
         &C::bytes_sent, {ranks}),
      of("bytes_received", "byte", "Bytes the rank received", bytes,
         &C::bytes_received, {ranks}),
      of("bytes_to_self", "byte", "Bytes of ranks to themselves", parts,
         &C::bytes_to_self, {}),
      of("bytes_within_nodes", "byte", "Bytes between two ranks of one node",
         parts, &C::bytes_within_nodes, {}),
      of("bytes_between_nodes", "byte", "Bytes between ranks of two nodes",
         parts, &C::bytes_between_nodes, {}),
      of("messages", "message", "Messages received", Domain::Count(),
         &C::messages, {}),
      of("assignments", "row", "(token, slot) pairs with an expert",
         rows.With(Relation::kAssignments), &C::assignments, {layers}),
      of("dispatch_rows", "row", "Rows that travelled to experts' ranks", rows,
         &C::dispatch_rows, {layers}),
      of("rank_rows", "row", "Distinct (token, rank) pairs", rows,
         &C::rank_rows, {layers}),
      of("node_rows", "row", "Distinct (token, node) pairs", rows,
         &C::node_rows, {layers}),
      of("max_rows_per_rank", "row", "Rows of the busiest rank's experts",
         busiest, &C::max_rows_per_rank, {layers}),
      of("max_rows_per_expert", "row", "Rows of the busiest expert", busiest,
         &C::max_rows_per_expert, {layers}),
      of("empty_experts", "expert", "Experts without a row", busiest,
         &C::empty_experts, {layers}),
      of("wait_seconds", "s", "Time that receivers waited for the rank",
         Domain::Seconds(), &C::wait_seconds, {ranks}, false),
  };
}

Columns PairList() {
  using C = ExchangeColumns;
  return {
      Column::Places({"rank", "rank", "Sending rank, from 0", Domain::Count()},
                     &C::ranks),
      {Field{"bytes_by_pair", "byte", "Bytes to each receiving rank",
             Domain::Count().With(Relation::kPairs)}
           .Only(When::kPairs)
           .On(Scope::kMesh),
       &C::bytes_by_pair,
       {{"ranks", &C::ranks}}},
  };
}

Columns EventList() {
  const auto events = &RunLog::events;
  return {
      // Until the year 10000.
      {{"unix_seconds", "s", "Time since 1970-01-01 00:00 UTC",
        Domain::Real(0, 253402300799).Accusing(Fault::kFile)},
       events,
       &Event::unix_seconds},
      {{"kind", "",
        "`start`, `resume`, `mesh`, `checkpoint`, `damage`, `cost`, "
        "`abort`, `interrupt` or `finish`",
        Domain::Text()},
       events,
       &Event::kind},
      {{"text", "", "What happened, in words", Domain::Text()},
       events,
       &Event::text},
  };
}

Schema RowSchema() {
  using L = RunLog;
  return {
      {"steps", "One row per optimizer step", 1,
       PartOf(&L::steps, ColumnsOf<StepColumns>())},
      {"eval", "Held-out evaluation on fixed batches", 1,
       PartOf(&L::eval, EvalList())},
      {"parameters", "Each parameter in each optimizer step", 3,
       PartOf(&L::parameters, ColumnsOf<ParameterColumns>())},
      {"tensors", "Tensors at chosen steps, in order of computation", 3,
       PartOf(&L::tensors, TensorList())},
      {"moe", "Routing of each optimizer step", 2, PartOf(&L::moe, MoeList())},
      {"exchange",
       "What each optimizer step moved between ranks, payload bytes without "
       "headers",
       2, PartOf(&L::exchange, ExchangeList())},
      {"exchange_pairs", "What all steps moved between each two ranks", 2,
       PartOf(&L::exchange, PairList())},
      {"events", "What happened, and when", 1, EventList()},
  };
}

Schema WholeSchema() {
  const Group version = {
      "",
      "",
      1,
      {{Role::kRunVersion,
        {"schema_version", "1", "Version of this layout", Domain::Count(1)},
        kSchemaVersion,
        &RunLog::schema_version}}};
  return Joined(
      {{version}, PartOf(&RunLog::provenance, FileSchema()), RowSchema()});
}

}  // namespace

template <>
const Columns& ColumnsOf<StepColumns>() {
  static const Columns columns = StepList();
  return columns;
}

template <>
const Columns& ColumnsOf<ParameterColumns>() {
  static const Columns columns = ParameterList();
  return columns;
}

template <>
const Schema& SchemaOf<RunLog>() {
  static const Schema schema = WholeSchema();
  return schema;
}

std::span<const Group> RowGroups() {
  static const Schema schema = RowSchema();
  return schema;
}

void StepColumns::Append(const StepRow& row) {
  AppendRow(ColumnsOf<StepColumns>(), View(row), MutableView(*this));
}

}  // namespace isoloss::runlog

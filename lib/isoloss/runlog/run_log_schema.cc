// Defines the groups of a run log: each has one row for each step, evaluation
// or event.
#include <cstdint>

#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {
namespace {

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

/// Returns the index of a group that has a row for every step, or for some.
Field StepIndex(Relation relation) {
  return {"step", "step", "Number of the optimizer step, from 1",
          Domain::Step().With(relation)};
}

}  // namespace

Columns ListOf(const StepColumns& /*part*/) {
  return {
#define ISOLOSS_STEP(type, name, unit, meaning, domain, ...)            \
  {Field{#name, unit, meaning, domain} __VA_ARGS__, &StepColumns::name, \
   &StepRow::name},
#include "isoloss/runlog/run_log.def"
  };
}

Columns ListOf(const ParameterColumns& /*part*/) {
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

namespace {

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
  const auto histogram = [&](const char* name, const char* meaning,
                             auto values) {
    const Domain blocks = Domain::Count().With(Relation::kScales);
    columns.emplace_back(
        Field{name, "block", meaning, blocks}.Only(When::kStatistics), values,
        std::vector{tensors, bytes});
  };
  histogram("e8m0_histogram", "Blocks along rows with each E8M0 byte",
            &C::e8m0_histogram);
  histogram("e8m0_histogram_columnwise",
            "Blocks down columns with each E8M0 byte",
            &C::e8m0_histogram_columnwise);
  return columns;
}

std::vector<Axis> Along(auto... axes) { return {axes...}; }

Columns MoeList() {
  using C = MoeColumns;
  const Axis layers("layers", &C::layers);
  const Axis experts("experts", &C::experts);
  const Axis tokens("tokens", &C::tokens);
  const Axis slots("slots", &C::top_k);
  return {
      {StepIndex(Relation::kStepRows).Only(When::kExperts), &C::step},
#define ISOLOSS_MOE(type, name, unit, meaning, axes, domain, ...)        \
  {Field{#name, unit, meaning, domain}.Only(When::kExperts) __VA_ARGS__, \
   &C::name, axes},
#include "isoloss/runlog/run_log.def"
  };
}

Columns ExchangeList() {
  using C = ExchangeColumns;
  const Axis ranks("ranks", &C::ranks);
  const Axis layers("layers", &C::layers);
  const Domain parts = Domain::Count().With(Relation::kBytes);
  const Domain bytes = parts.With(Relation::kPairs);
  const Domain rows = Domain::Count().With(Relation::kRowOrder);
  const Domain busiest = Domain::Count().With(Relation::kBusiest);
  Columns columns = {
      {StepIndex(Relation::kStepRows), &C::step},
#define ISOLOSS_EXCHANGE(type, name, unit, meaning, axes, domain, ...)         \
  {Field{#name, unit, meaning, domain}.On(Scope::kMesh) __VA_ARGS__, &C::name, \
   axes},
#include "isoloss/runlog/run_log.def"
  };
  for (Column& column : columns) column.field.when = When::kTransport;
  return columns;
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
      // The largest time is the last second of year 9999.
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

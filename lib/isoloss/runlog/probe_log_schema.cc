#include "isoloss/runlog/probe_log_schema.h"

#include <cstdint>

namespace isoloss::runlog {
namespace {

/// Of the layout of probe logs that brought these columns.
constexpr int64_t kShapeVersion = 2;

Column ProbedStep(auto values, auto value) {
  return {{"step", "step", "Number of the probed optimizer step, from 1",
           Domain::Count(1)},
          values,
          value};
}

Column OfCase(auto values, auto value) {
  return {
      {"probe_case", "1", "Place in /cases", Domain::Count()}, values, value};
}

Column OfTensor(auto values, auto value) {
  return {{"tensor", "1", "Place in /tensors", Domain::Count()}, values, value};
}

/// Statistics that a sound run's file can't have outside of their range.
Domain Figure(double least) {
  return Domain::Real(least).Accusing(Fault::kFile);
}

Columns OracleList() {
  using C = OracleColumns;
  using R = OracleRow;
  const Domain count = Domain::Count();
  const Domain place = Domain::Count(-1);
  const Domain ratio = Figure(0).OrInfinity();
  return {
      OfCase(&C::probe_case, &R::probe_case),
      ProbedStep(&C::step, &R::step),
      OfTensor(&C::tensor, &R::tensor),
      {{"elements", "1", "Elements of the tensor", Domain::Count(1)},
       &C::elements,
       &R::elements},
      {{"equal", "1", "Elements with the bits of the oracle's value", count},
       &C::equal,
       &R::equal},
      {{"flips", "1",
        "Elements that rounding noise of FP32 accumulation explains", count},
       &C::flips,
       &R::flips},
      {{"other", "1", "Elements that no order of accumulation explains", count},
       &C::other,
       &R::other},
      {{"expected_flips", "1",
        "Flips that accumulation in ascending order leads one to expect",
        Figure(0)},
       &C::expected_flips,
       &R::expected_flips},
      {{"noise_ratio", "1",
        "Root mean square error over that of FP32 accumulation in ascending "
        "order; NaN for a tensor rounded to fewer bits",
        ratio.OrNan()},
       &C::noise_ratio,
       &R::noise_ratio},
      {{"worst_ratio", "1",
        "Largest error over its bound; infinite where only one of value and "
        "oracle is finite",
        ratio},
       &C::worst_ratio,
       &R::worst_ratio},
      {{"worst_row", "1", "Row of that element; -1 if all are equal", place},
       &C::worst_row,
       &R::worst_row},
      {{"worst_column", "1", "Column of that element", place},
       &C::worst_column,
       &R::worst_column},
      {{"worst_value", "1", "Value of that element",
        Domain::Fp32().OrNan().OrAnyInfinity()},
       &C::worst_value,
       &R::worst_value},
      {{"worst_expected", "1", "The oracle's value of that element",
        Domain::Real().OrNan().OrAnyInfinity()},
       &C::worst_expected,
       &R::worst_expected},
  };
}

Columns OracleShapeList() {
  using C = OracleColumns;
  using R = OracleRow;
  const Domain count = Domain::Count();
  Columns columns = {
      {{"flips_toward_zero", "1",
        "Flips to a value nearer to zero than the oracle's", count},
       &C::flips_toward_zero,
       &R::flips_toward_zero},
      {{"repeated_flips", "1",
        "Flips beyond one of all elements of the same significand", count},
       &C::repeated_flips,
       &R::repeated_flips},
      {{"expected_repeated_flips", "1",
        "Flips that are expected beyond one of such elements", Figure(0)},
       &C::expected_repeated_flips,
       &R::expected_repeated_flips},
      {{"row_noise_ratio", "1",
        "Largest root mean square error of a row over that of FP32 "
        "accumulation and of chance; NaN where there is no noise_ratio",
        Figure(0).OrNan().OrInfinity()},
       &C::row_noise_ratio,
       &R::row_noise_ratio},
      {{"noisiest_row", "1", "Row of that error; -1 if there is none",
        Domain::Count(-1)},
       &C::noisiest_row,
       &R::noisiest_row},
      {{"noisy_elements", "1",
        "Elements of an FP32 tensor that accumulation may leave inexact",
        count},
       &C::noisy_elements,
       &R::noisy_elements},
      {{"signed_error", "1",
        "Mean over them of the error over its standard deviation, beyond "
        "what a shared scale explains, negative toward zero; NaN if there are "
        "none",
        Domain::Real().OrNan().OrAnyInfinity().Accusing(Fault::kFile)},
       &C::signed_error,
       &R::signed_error},
  };
  for (Column& column : columns) column.own_since = kShapeVersion;
  return columns;
}

Columns RoutingList() {
  using C = OracleRoutingColumns;
  using R = OracleRoutingRow;
  return {
      OfCase(&C::probe_case, &R::probe_case),
      ProbedStep(&C::step, &R::step),
      {{"layer", "1", "Number of the MoE layer, from 0", Domain::Count()},
       &C::layer,
       &R::layer},
      {{"tokens", "token", "Tokens that were routed", Domain::Count(1)},
       &C::tokens,
       &R::tokens},
      {{"flips", "token",
        "Tokens sent elsewhere by scores within rounding noise",
        Domain::Count()},
       &C::flips,
       &R::flips},
      {{"other", "token", "Tokens sent elsewhere without explanation",
        Domain::Count()},
       &C::other,
       &R::other},
      Column({"digest", "1",
              "Digest of who chose whom, as /moe/routing_digest of a run log",
              Domain::Digest()},
             &C::digest, &R::digest)
          .Since(kShapeVersion),
  };
}

Columns PrecisionList() {
  using C = PrecisionColumns;
  using R = PrecisionRow;
  const Domain share = Domain::Real(0, 100).OrNan();
  return {
      ProbedStep(&C::step, &R::step),
      OfTensor(&C::tensor, &R::tensor),
      {{"relative_error", "1",
        "Norm of the difference over that of the reference", Domain::Ratio()},
       &C::relative_error,
       &R::relative_error},
      {{"gain", "1", "Projection on the reference over the reference, minus 1",
        Domain::Ratio(-1)},
       &C::gain,
       &R::gain},
      {{"worst_group_error", "1", "Largest relative error of a group of rows",
        Domain::Ratio()},
       &C::worst_group_error,
       &R::worst_group_error},
      {{"saturated", "%", "Elements at the largest code; NaN if not quantised",
        share},
       &C::saturated,
       &R::saturated},
      {{"underflows", "%",
        "Elements not zero that became zero; NaN if not quantised", share},
       &C::underflows,
       &R::underflows},
  };
}

Columns RoutingFlipList() {
  using C = RoutingFlipColumns;
  return {
      {{"step", "step", "Number of the probed optimizer step, from 1",
        Domain::Count(1)},
       &C::step},
      {{"layer", "1", "Number of the MoE layer, from 0", Domain::Count()},
       &C::layer},
      {{"flip_share", "1",
        "Replayed (token, slot) pairs that the candidate's own router would "
        "have sent elsewhere, over all",
        Domain::Real(0, 1)},
       &C::flip_share},
  };
}

Columns PlainStepList() {
  using C = PlainStepColumns;
  const auto bytes = [](const char* name, const char* description,
                        auto values) {
    return Column({name, "byte", description, Domain::Count()}, values)
        .Since(kShapeVersion);
  };
  return {
      {{"step", "step", "Number of the optimizer step, from 1", Domain::Step()},
       &C::step},
      {{"loss_nats", "nat", "Mean training loss, as in the run log",
        Domain::Positive(kMostFp32)},
       &C::loss_nats},
      {{"grad_norm", "1", "Global gradient norm, as in the run log",
        Domain::Norm()},
       &C::grad_norm},
      bytes("bytes_to_self",
            "Bytes of ranks to themselves, as the oracle counts them",
            &C::bytes_to_self),
      bytes("bytes_within_nodes",
            "Bytes between two ranks of one node, as the oracle counts them",
            &C::bytes_within_nodes),
      bytes("bytes_between_nodes",
            "Bytes between nodes, as the oracle counts them",
            &C::bytes_between_nodes),
  };
}

/// A group in which all columns are required.
template <typename Part>
Group Required(const char* name, const char* description,
               Part ProbeLog::*part) {
  Columns columns = PartOf(part, ColumnsOf<Part>());
  for (Column& column : columns) column.required = true;
  Group group(name, description, 1, std::move(columns));
  group.own_version = OffsetOf(&ProbeLog::schema_version);
  return group;
}

Schema ComparisonSchema() {
  using L = ProbeLog;
  return {
      Required("oracle", "Each tensor of each probed step against the oracle",
               &L::oracle),
      Required("routing", "Each MoE layer of each probed step", &L::routing),
      Required("precision",
               "Each tensor of each teacher-forced step against a reference "
               "arm",
               &L::precision),
      Required("routing_flips", "Each MoE layer of each teacher-forced step",
               &L::routing_flips),
  };
}

Group PlainStepGroup() {
  return Required("plain_steps", "Each step of the run of case plain",
                  &ProbeLog::plain_steps);
}

Schema ProbeSchema() {
  using L = ProbeLog;
  const Group versions(
      "", "", 1,
      {{Role::kOwnVersion,
        {"probe_schema_version", "1", "Version of this layout",
         Domain::Count(1)},
        kProbeSchemaVersion,
        &L::schema_version},
       {Role::kRunVersion,
        {"run_schema_version", "1",
         "Version of the run log's layout that attributes follow",
         Domain::Count(1)},
        kSchemaVersion}});
  const Group attributes(
      "", "", 1,
      {{{"reference_recipe", "",
         "Recipe of the arm that /precision compares with", Domain::Text()},
        &L::reference_recipe},
       {Field{"operations", "1",
              "Recorded operations of another program that were compared; "
              "absent: isoloss probed a run of its own",
              Domain::Count()}
            .Optional(),
        &L::operations}});
  const Group cases(
      "cases", "What was probed", 1,
      {{{"name", "", "Case of the inputs", Domain::Text()}, &L::cases}});
  const Group tensors(
      "tensors", "Tensors of a step, in order of computation", 1,
      {{{"name", "", "<module>_<tensor>", Domain::Text()}, &L::tensors}});
  return Joined({{versions},
                 PartOf(&L::provenance, FileSchema()),
                 {attributes, cases, tensors, PlainStepGroup()},
                 ComparisonSchema()});
}

Group WithoutRule(Group steps) {
  steps.columns.resize(3, steps.columns.front());
  for (Column& column : std::span(steps.columns).subspan(1)) {
    column.field.domain = column.field.domain.OrNan();
  }
  return steps;
}

}  // namespace

template <>
const Columns& ColumnsOf<OracleColumns>() {
  static const Columns columns = [] {
    Columns all = OracleList();
    for (Column& column : OracleShapeList()) all.push_back(std::move(column));
    return all;
  }();
  return columns;
}

template <>
const Columns& ColumnsOf<OracleRoutingColumns>() {
  static const Columns columns = RoutingList();
  return columns;
}

template <>
const Columns& ColumnsOf<PrecisionColumns>() {
  static const Columns columns = PrecisionList();
  return columns;
}

template <>
const Columns& ColumnsOf<RoutingFlipColumns>() {
  static const Columns columns = RoutingFlipList();
  return columns;
}

template <>
const Columns& ColumnsOf<PlainStepColumns>() {
  static const Columns columns = PlainStepList();
  return columns;
}

std::span<const Group> ComparisonGroups() {
  static const Schema schema = ComparisonSchema();
  return schema;
}

const Group& ForeignStepGroup() {
  static const Group group = WithoutRule(PlainStepGroup());
  return group;
}

template <>
const Schema& SchemaOf<ProbeLog>() {
  static const Schema schema = ProbeSchema();
  return schema;
}

void OracleColumns::Append(const OracleRow& row) {
  AppendRow(ColumnsOf<OracleColumns>(), View(row), MutableView(*this));
}

void OracleRoutingColumns::Append(const OracleRoutingRow& row) {
  AppendRow(ColumnsOf<OracleRoutingColumns>(), View(row), MutableView(*this));
}

void PrecisionColumns::Append(const PrecisionRow& row) {
  AppendRow(ColumnsOf<PrecisionColumns>(), View(row), MutableView(*this));
}

}  // namespace isoloss::runlog

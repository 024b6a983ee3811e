// Every group, dataset and attribute of a probe log, as schema.h has those of a
// run log. An ensemble (ensemble.cc) shares its columns.
#pragma once

#include "isoloss/runlog/probe_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Calls visit(field, part of each of `rows`...) for every column. `rows` are
/// OracleColumns, OracleRows or both; likewise below.
template <typename Visit, typename... Rows>
void VisitOracle(Visit&& visit, Rows&... rows) {
  visit(Field{"probe_case", "1", "Place in /cases", Domain::Count()},
        rows.probe_case...);
  visit(Field{"step", "step", "Number of the probed optimizer step, from 1",
              Domain::Count(1)},
        rows.step...);
  visit(Field{"tensor", "1", "Place in /tensors", Domain::Count()},
        rows.tensor...);
  visit(Field{"elements", "1", "Elements of the tensor", Domain::Count(1)},
        rows.elements...);
  visit(Field{"equal", "1", "Elements with the bits of the oracle's value",
              Domain::Count()},
        rows.equal...);
  visit(Field{"flips", "1",
              "Elements that rounding noise of FP32 accumulation explains",
              Domain::Count()},
        rows.flips...);
  visit(Field{"other", "1", "Elements that no order of accumulation explains",
              Domain::Count()},
        rows.other...);
  visit(Field{"expected_flips", "1",
              "Flips that accumulation in ascending order leads one to expect",
              Domain::Real(0).Accusing(Fault::kFile)},
        rows.expected_flips...);
  visit(Field{"noise_ratio", "1",
              "Root mean square error over that of FP32 accumulation in "
              "ascending order; NaN for a tensor rounded to fewer bits",
              Domain::Real(0).OrNan().OrInfinity().Accusing(Fault::kFile)},
        rows.noise_ratio...);
  visit(Field{"worst_ratio", "1",
              "Largest error over its bound; infinite where only one of value "
              "and oracle is finite",
              Domain::Real(0).OrInfinity().Accusing(Fault::kFile)},
        rows.worst_ratio...);
  visit(Field{"worst_row", "1", "Row of that element; -1 if all are equal",
              Domain::Count(-1)},
        rows.worst_row...);
  visit(Field{"worst_column", "1", "Column of that element", Domain::Count(-1)},
        rows.worst_column...);
  visit(Field{"worst_value", "1", "Value of that element",
              Domain::Fp32().OrNan().OrAnyInfinity()},
        rows.worst_value...);
  visit(Field{"worst_expected", "1", "The oracle's value of that element",
              Domain::Real().OrNan().OrAnyInfinity()},
        rows.worst_expected...);
}

/// The columns of /oracle that layout 2 brought.
template <typename Visit, typename... Rows>
void VisitOracleShape(Visit&& visit, Rows&... rows) {
  visit(Field{"flips_toward_zero", "1",
              "Flips to a value nearer to zero than the oracle's",
              Domain::Count()},
        rows.flips_toward_zero...);
  visit(Field{"repeated_flips", "1",
              "Flips beyond one of all elements of the same significand",
              Domain::Count()},
        rows.repeated_flips...);
  visit(Field{"expected_repeated_flips", "1",
              "Flips that are expected beyond one of such elements",
              Domain::Real(0).Accusing(Fault::kFile)},
        rows.expected_repeated_flips...);
  visit(Field{"row_noise_ratio", "1",
              "Largest root mean square error of a row over that of FP32 "
              "accumulation and of chance; NaN where there is no noise_ratio",
              Domain::Real(0).OrNan().OrInfinity().Accusing(Fault::kFile)},
        rows.row_noise_ratio...);
  visit(Field{"noisiest_row", "1", "Row of that error; -1 if there is none",
              Domain::Count(-1)},
        rows.noisiest_row...);
  visit(Field{"noisy_elements", "1",
              "Elements of an FP32 tensor that accumulation may leave inexact",
              Domain::Count()},
        rows.noisy_elements...);
  visit(Field{"signed_error", "1",
              "Mean over them of the error over its standard deviation, beyond "
              "what a shared scale explains, negative toward zero; NaN if "
              "there are none",
              Domain::Real().OrNan().OrAnyInfinity().Accusing(Fault::kFile)},
        rows.signed_error...);
}

template <typename Visit, typename... Rows>
void VisitOracleRouting(Visit&& visit, Rows&... rows) {
  visit(Field{"probe_case", "1", "Place in /cases", Domain::Count()},
        rows.probe_case...);
  visit(Field{"step", "step", "Number of the probed optimizer step, from 1",
              Domain::Count(1)},
        rows.step...);
  visit(Field{"layer", "1", "Number of the MoE layer, from 0", Domain::Count()},
        rows.layer...);
  visit(Field{"tokens", "token", "Tokens that were routed", Domain::Count(1)},
        rows.tokens...);
  visit(Field{"flips", "token",
              "Tokens sent elsewhere by scores within rounding noise",
              Domain::Count()},
        rows.flips...);
  visit(Field{"other", "token", "Tokens sent elsewhere without explanation",
              Domain::Count()},
        rows.other...);
}

/// The column of /routing that layout 2 brought.
template <typename Visit, typename... Rows>
void VisitRoutingDigest(Visit&& visit, Rows&... rows) {
  visit(Field{"digest", "1",
              "Digest of who chose whom, as /moe/routing_digest of a run log",
              Domain::Digest()},
        rows.digest...);
}

template <typename Visit, typename... Rows>
void VisitPrecision(Visit&& visit, Rows&... rows) {
  visit(Field{"step", "step", "Number of the probed optimizer step, from 1",
              Domain::Count(1)},
        rows.step...);
  visit(Field{"tensor", "1", "Place in /tensors", Domain::Count()},
        rows.tensor...);
  visit(Field{"relative_error", "1",
              "Norm of the difference over that of the reference",
              Domain::Ratio()},
        rows.relative_error...);
  visit(Field{"gain", "1",
              "Projection on the reference over the reference, minus 1",
              Domain::Ratio(-1)},
        rows.gain...);
  visit(Field{"worst_group_error", "1",
              "Largest relative error of a group of rows", Domain::Ratio()},
        rows.worst_group_error...);
  visit(Field{"saturated", "%",
              "Elements at the largest code; NaN if not quantised",
              Domain::Real(0, 100).OrNan()},
        rows.saturated...);
  visit(Field{"underflows", "%",
              "Elements not zero that became zero; NaN if not quantised",
              Domain::Real(0, 100).OrNan()},
        rows.underflows...);
}

template <typename Visit, typename... Rows>
void VisitRoutingFlips(Visit&& visit, Rows&... rows) {
  visit(Field{"step", "step", "Number of the probed optimizer step, from 1",
              Domain::Count(1)},
        rows.step...);
  visit(Field{"layer", "1", "Number of the MoE layer, from 0", Domain::Count()},
        rows.layer...);
  visit(Field{"flip_share", "1",
              "Replayed (token, slot) pairs that the candidate's own router "
              "would have sent elsewhere, over all",
              Domain::Real(0, 1)},
        rows.flip_share...);
}

template <typename Visit, typename... Rows>
void VisitPlainSteps(Visit&& visit, Rows&... rows) {
  visit(Field{"step", "step", "Number of the optimizer step, from 1",
              Domain::Step()},
        rows.step...);
  visit(Field{"loss_nats", "nat", "Mean training loss, as in the run log",
              Domain::Positive(kMostFp32)},
        rows.loss_nats...);
  visit(Field{"grad_norm", "1", "Global gradient norm, as in the run log",
              Domain::Norm()},
        rows.grad_norm...);
}

/// Of another program's operations: the values that were recorded.
template <typename Visit, typename... Rows>
void VisitForeignSteps(Visit&& visit, Rows&... rows) {
  visit(Field{"step", "step", "As in VisitPlainSteps", Domain::Step()},
        rows.step...);
  visit(
      Field{"loss_nats", "nat", "Or NaN", Domain::Positive(kMostFp32).OrNan()},
      rows.loss_nats...);
  visit(Field{"grad_norm", "1", "Or NaN", Domain::Norm().OrNan()},
        rows.grad_norm...);
}

/// The columns of /plain_steps that layout 2 brought.
template <typename Visit, typename... Rows>
void VisitPlainBytes(Visit&& visit, Rows&... rows) {
  visit(Field{"bytes_to_self", "byte",
              "Bytes of ranks to themselves, as the oracle counts them",
              Domain::Count()},
        rows.bytes_to_self...);
  visit(Field{"bytes_within_nodes", "byte",
              "Bytes between two ranks of one node, as the oracle counts them",
              Domain::Count()},
        rows.bytes_within_nodes...);
  visit(
      Field{"bytes_between_nodes", "byte",
            "Bytes between nodes, as the oracle counts them", Domain::Count()},
      rows.bytes_between_nodes...);
}

/// The groups of comparisons.
template <typename Visitor, typename ProbeLogT>
void VisitComparisons(Visitor& visitor, ProbeLogT& log) {
  const auto required = [&visitor](const Field& field, auto& values) {
    visitor.RequiredColumn(field, values);
  };
  const auto of_layout_2 = [&](const Field& field, auto& values) {
    if (log.schema_version >= 2) visitor.RequiredColumn(field, values);
  };
  visitor.Group("oracle", "Each tensor of each probed step against the oracle",
                1);
  VisitOracle(required, log.oracle);
  VisitOracleShape(of_layout_2, log.oracle);
  visitor.Group("routing", "Each MoE layer of each probed step", 1);
  VisitOracleRouting(required, log.routing);
  VisitRoutingDigest(of_layout_2, log.routing);
  visitor.Group("precision",
                "Each tensor of each teacher-forced step against a reference "
                "arm",
                1);
  VisitPrecision(required, log.precision);
  visitor.Group("routing_flips", "Each MoE layer of each teacher-forced step",
                1);
  VisitRoutingFlips(required, log.routing_flips);
}

/// Walks the layout in its order on disk. Besides what VisitRunLog asks of a
/// visitor:
///   LayoutVersion(field, newest)   version of this layout; Version is then
///                                  that of the parts taken from the run log's
///   layout_version()               of the file, if it reads one
template <typename Visitor, typename ProbeLogT>
void VisitProbeLog(Visitor& visitor, ProbeLogT& log) {
  const auto required = [&visitor](const Field& field, auto& values) {
    visitor.RequiredColumn(field, values);
  };
  const auto of_layout_2 = [&](const Field& field, auto& values) {
    if (log.schema_version >= 2) visitor.RequiredColumn(field, values);
  };
  const Field layout = {"probe_schema_version", "1", "Version of this layout",
                        Domain::Count(1)};
  if constexpr (requires { visitor.layout_version(); }) {
    visitor.LayoutVersion(layout, kProbeSchemaVersion);
    log.schema_version = visitor.layout_version();
  } else {
    visitor.LayoutVersion(layout, log.schema_version);
  }
  visitor.Version(Field{"run_schema_version", "1",
                        "Version of the run log's layout that attributes "
                        "follow",
                        Domain::Count(1)},
                  kSchemaVersion);
  VisitProvenance(visitor, log.provenance);
  VisitOrigin(visitor, log.provenance.origin);
  VisitGraph(visitor, log.provenance.graph);
  visitor.Attribute(
      Field{"reference_recipe", "",
            "Recipe of the arm that /precision compares with", Domain::Text()},
      log.reference_recipe);
  visitor.Attribute(Field{"operations", "1",
                          "Recorded operations of another program that were "
                          "compared; absent: isoloss probed a run of its own",
                          Domain::Count()}
                        .Optional(),
                    log.operations);
  visitor.Group("cases", "What was probed", 1);
  required(Field{"name", "", "Case of the inputs", Domain::Text()}, log.cases);
  visitor.Group("tensors", "Tensors of a step, in order of computation", 1);
  required(Field{"name", "", "<module>_<tensor>", Domain::Text()}, log.tensors);
  visitor.Group("plain_steps", "Each step of the run of case plain", 1);
  VisitPlainSteps(required, log.plain_steps);
  VisitPlainBytes(of_layout_2, log.plain_steps);
  VisitComparisons(visitor, log);
}

}  // namespace isoloss::runlog

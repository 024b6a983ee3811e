#include "isoloss/compare/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::compare {
namespace {

void Add(const std::string& value, Digest& digest) {
  const uint64_t size = value.size();
  digest.Update(&size, sizeof(size));
  digest.Update(value);
}

template <typename T>
void Add(const T& value, Digest& digest) {
  digest.Update(&value, sizeof(value));
}

/// Adds an attribute that equal runs share, if the log's layout has it.
void AddAttribute(const runlog::Column& column, const runlog::RunLog& log,
                  std::vector<ContentPart>& parts) {
  const runlog::Field& field = column.field;
  if (!field.reproducible || field.since > log.schema_version) return;
  runlog::View(log.provenance)
      .WithValue(column, [&]<typename T>(const T& value) {
        if (field.optional && value == T{}) return;
        Digest digest;
        Add(value, digest);
        ContentPart part = {.name = field.name,
                            .digest = DigestToHex(digest.Value()),
                            .describes_run = true};
        if constexpr (std::is_same_v<T, double>) part.number = value;
        parts.push_back(std::move(part));
      });
}

void AddDataset(const runlog::Group& group, const runlog::Column& column,
                const runlog::View& log, bool describes_run,
                std::vector<ContentPart>& parts) {
  if (!column.field.reproducible || log.Count(column) == 0) return;
  Digest digest;
  for (const runlog::Axis& axis : column.axes) Add(log.Size(axis), digest);
  log.WithValues(column, [&digest](const auto& values) {
    for (const auto& value : values) Add(value, digest);
  });
  parts.push_back({.name = group.PathOf(column),
                   .digest = DigestToHex(digest.Value()),
                   .describes_run = describes_run});
}

// Rounding may change all of these attributes but the first. Another check
// judges the first: runs of different initial weights are not compared at all.
constexpr std::array<std::string_view, 4> kJudgedElsewhere = {
    "initial_weights_digest", "final_weights_digest", "numerics_digest",
    "complete"};

/// Returns whether a part that differs describes the run. `other` is null if
/// the second log lacks the part.
bool IsOtherDescription(const ContentPart& part, const ContentPart* other) {
  constexpr double kTolerance = 1e-9;
  if (!part.describes_run) return false;
  if (std::ranges::count(kJudgedElsewhere, part.name) != 0) return false;
  if (other == nullptr || !part.number || !other->number) return true;
  // The condition is negated so that NaN differs.
  return !(std::fabs(*part.number - *other->number) <=
           kTolerance * std::fabs(*part.number));
}

std::string Hex(int64_t digest) {
  return DigestToHex(static_cast<uint64_t>(digest));
}

/// "-" if a log has no such column.
template <typename Format>
std::string Cell(const auto& column, size_t row, Format&& format) {
  return row < column.size() ? format(column[row]) : "-";
}

/// Returns the digest of the digests in the row of `step`; "-" if it has none.
std::string RowDigest(const std::vector<int64_t>& steps, int64_t step,
                      const std::vector<int64_t>& values) {
  const auto found = std::ranges::lower_bound(steps, step);
  if (found == steps.end() || *found != step || values.empty()) return "-";
  const size_t width = values.size() / steps.size();
  const auto row = static_cast<size_t>(found - steps.begin());
  const auto digests = std::span(values).subspan(row * width, width);
  return DigestToHex(DigestOf(digests.data(), digests.size_bytes()));
}

std::string HeaderText(const runlog::RunLog& log) {
  const runlog::Provenance& p = log.provenance;
  const std::map<std::string_view, std::string> lines = {
      {"arm", fmt::format("{} (baseline: {})", p.arm, p.baseline_arm)},
      {"commit", p.commit},
      {"compiler", p.compiler},
      {"configuration", p.config_digest},
      {"content", ContentDigest(log)},
      {"corpus", p.corpus_digest},
      {"cpu", p.cpu_target},
      {"exchange", p.exchange},
      {"experiment", p.experiment_name},
      {"final weights", p.final_weights_digest},
      {"initial weights", p.initial_weights_digest},
      {"numerics", p.numerics_digest},
      {"recipe", p.recipe},
      {"seed", fmt::to_string(p.seed)},
      {"steps",
       fmt::format("{} of {}", log.steps.step.size(), p.steps_planned)},
      {"tool", p.tool_version},
  };
  std::string text;
  for (const auto& [key, value] : lines) {
    text += fmt::format("{:<16}{}\n", key, value);
  }
  return text;
}

std::string EvaluationsText(const runlog::EvalColumns& eval) {
  std::string text =
      fmt::format("{:>5}  {:>10}  {}\n", "after", "held_out", "held_out_hex");
  for (size_t i = 0; i < eval.step.size(); ++i) {
    text += fmt::format("{:>5}  {:>10.6f}  {:a}\n", eval.step[i],
                        eval.loss_nats[i], eval.loss_nats[i]);
  }
  return text;
}

std::string StepsText(const runlog::RunLog& log) {
  constexpr auto* kLine = "{:>5}  {:>10}  {:<22}  {:<22}  {:<16}  {:<16}  {}\n";
  const auto hex = [](double value) { return fmt::format("{:a}", value); };
  const auto decimals = [](double value) {
    return fmt::format("{:.6f}", value);
  };
  std::string text =
      fmt::format(fmt::runtime(kLine), "step", "loss", "loss_hex",
                  "grad_norm_hex", "batch", "routing", "tensors");
  const runlog::StepColumns& steps = log.steps;
  for (size_t i = 0; i < steps.step.size(); ++i) {
    const int64_t step = steps.step[i];
    text += fmt::format(
        fmt::runtime(kLine), step, Cell(steps.loss_nats, i, decimals),
        Cell(steps.loss_nats, i, hex), Cell(steps.grad_norm, i, hex),
        Cell(steps.batch_digest, i, &Hex),
        RowDigest(log.moe.step, step, log.moe.routing_digest),
        RowDigest(log.tensors.step, step, log.tensors.digest));
  }
  return text;
}

}  // namespace

std::vector<ContentPart> ContentOf(const runlog::RunLog& log) {
  std::vector<ContentPart> parts;
  for (const auto& group : runlog::SchemaOf<runlog::Provenance>()) {
    for (const runlog::Column& column : group.columns) {
      if (group.IsFile()) {
        AddAttribute(column, log, parts);
      } else {
        AddDataset(group, column, runlog::View(log.provenance), true, parts);
      }
    }
  }
  for (const runlog::Group& group : runlog::RowGroups()) {
    for (const runlog::Column& column : group.columns) {
      if (!column.IsRecorded()) continue;
      AddDataset(group, column, runlog::View(log), false, parts);
    }
  }
  return parts;
}

std::string ContentDigest(const runlog::RunLog& log) {
  Digest digest;
  for (const ContentPart& part : ContentOf(log)) {
    Add(part.name, digest);
    Add(part.digest, digest);
  }
  return DigestToHex(digest.Value());
}

ContentDifference CompareContent(const runlog::RunLog& golden,
                                 const runlog::RunLog& run) {
  std::map<std::string, ContentPart> left;
  for (ContentPart& part : ContentOf(run)) {
    const std::string name = part.name;
    left.emplace(name, std::move(part));
  }
  ContentDifference difference;
  for (const ContentPart& part : ContentOf(golden)) {
    const auto found = left.extract(part.name);
    const ContentPart* const other = found.empty() ? nullptr : &found.mapped();
    if (other != nullptr && other->digest == part.digest) continue;
    difference.differing.push_back(part.name);
    if (IsOtherDescription(part, other)) {
      difference.description.push_back(part.name);
    }
  }
  for (const auto& [name, part] : left) difference.added.push_back(name);
  return difference;
}

std::string GoldenText(const runlog::RunLog& log, const std::string& name) {
  return fmt::format(
      "# {}.h5 as text, for review. Written by `isoloss golden update`; "
      "`isoloss golden check` refuses a text that is not of its log.\n{}\n{}\n"
      "{}",
      name, HeaderText(log), EvaluationsText(log.eval), StepsText(log));
}

}  // namespace isoloss::compare

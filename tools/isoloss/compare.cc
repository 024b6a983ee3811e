// isoloss compare: two logs side by side; differences, no verdict.

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/compare/first_divergence.h"
#include "judge.h"

namespace isoloss::cli {
namespace {

/// At most this many rows, evenly spaced, first and last step included.
constexpr size_t kRows = 12;

void PrintRow(const runlog::StepColumns& a, const runlog::StepColumns& b,
              size_t i) {
  fmt::print("{:>8}  {:>12.6f} {:>12.6f} {:>+12.3e}", a.step[i], a.loss_nats[i],
             b.loss_nats[i], b.loss_nats[i] - a.loss_nats[i]);
  if (!a.grad_norm.empty() && !b.grad_norm.empty()) {
    fmt::print("  {:>11.5f} {:>11.5f} {:>+9.3f} %", a.grad_norm[i],
               b.grad_norm[i],
               100 * (b.grad_norm[i] - a.grad_norm[i]) / a.grad_norm[i]);
  }
  fmt::print("\n");
}

void PrintTable(const runlog::StepColumns& a, const runlog::StepColumns& b,
                size_t steps) {
  fmt::print("{:>8}  {:>12} {:>12} {:>12}  {:>11} {:>11} {:>11}\n", "step",
             "loss A", "loss B", "B - A nats", "grad A", "grad B", "relative");
  const size_t rows = std::min(steps, kRows);
  for (size_t row = 0; row < rows; ++row) {
    PrintRow(a, b, rows == 1 ? 0 : row * (steps - 1) / (rows - 1));
  }
}

ExitCode Compare(const std::vector<std::filesystem::path>& files) {
  const std::vector<compare::Run> runs = ReadRuns(files);
  const runlog::StepColumns& a = runs[0].log.steps;
  const runlog::StepColumns& b = runs[1].log.steps;
  for (const compare::Run& run : runs) {
    const runlog::Provenance& p = run.log.provenance;
    fmt::print("{}  {}: arm {}, recipe {}, seed {}, {} steps\n",
               &run == &runs[0] ? "A" : "B", run.file, p.arm, p.recipe, p.seed,
               run.log.steps.step.size());
  }
  const size_t steps = std::min(a.step.size(), b.step.size());
  if (steps == 0 ||
      !std::equal(a.step.begin(), a.step.begin() + steps, b.step.begin())) {
    ThrowError(ErrorKind::kFormat,
               "compare: {} and {} have {} and {} steps with no common start, "
               "so nothing can be set side by side. Compare logs of one "
               "experiment.",
               runs[0].file, runs[1].file, a.step.size(), b.step.size());
  }
  PrintTable(a, b, steps);
  const auto divergence = compare::FirstDivergence(a, b);
  if (divergence) {
    fmt::print("First divergence: step {}, {}: {:.17g} against {:.17g}\n",
               divergence->step, divergence->quantity, divergence->baseline,
               divergence->candidate);
    return ExitCode::kFail;
  }
  if (a.step.size() != b.step.size()) {
    fmt::print(
        "Equal to the bit over the {} common steps; A has {}, B has {}\n",
        steps, a.step.size(), b.step.size());
    return ExitCode::kFail;
  }
  fmt::print("Losses and gradient norms are equal to the bit\n");
  return ExitCode::kPass;
}

}  // namespace

Action DeclareCompare(CLI::App& app) {
  auto files = std::make_shared<std::vector<std::filesystem::path>>();
  app.add_option("logs", *files, "Two run logs (HDF5)")
      ->required()
      ->expected(2);
  app.description(
      "Compare two run logs; names the first step that differs. Exit code 0 if "
      "equal to the bit, 1 if not");
  return [files] { return Compare(*files); };
}

}  // namespace isoloss::cli

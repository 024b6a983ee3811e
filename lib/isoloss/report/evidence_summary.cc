#include "isoloss/report/evidence_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "isoloss/base/saturating.h"
#include "isoloss/gate/probe_completeness.h"

namespace isoloss::report {
namespace {

using document::Document;

/// Returns the names of a list, on one line.
template <typename T>
std::string NumbersText(const std::vector<T>& values) {
  constexpr size_t kListed = 6;
  if (values.size() <= kListed)
    return fmt::format("{}", fmt::join(values, " "));
  return fmt::format("{} … {}",
                     fmt::join(std::span(values).first(kListed - 1), " "),
                     values.back());
}

void AddElements(const runlog::ProbeLog& log, size_t i,
                 ProbeCaseSummary& summary) {
  const runlog::OracleColumns& rows = log.oracle;
  ++summary.tensors;
  summary.elements = SaturatingAdd(summary.elements, rows.elements[i]);
  summary.unseen = SaturatingAdd(summary.unseen, rows.UnseenElements(i));
  summary.flips = SaturatingAdd(summary.flips, rows.flips[i]);
  summary.expected_flips += rows.expected_flips[i];
  summary.other = SaturatingAdd(summary.other, rows.other[i]);
  if (rows.other[i] == 0) return;
  ++summary.other_tensors;
  if (summary.worst && !(rows.worst_ratio[i] > summary.worst->ratio)) return;
  summary.worst = {log.tensors[static_cast<size_t>(rows.tensor[i])],
                   rows.step[i],
                   rows.worst_row[i],
                   rows.worst_column[i],
                   rows.worst_value[i],
                   rows.worst_expected[i],
                   rows.worst_ratio[i]};
}

void AddTokens(const runlog::OracleRoutingColumns& rows, size_t i,
               ProbeCaseSummary& summary) {
  summary.tokens = SaturatingAdd(summary.tokens, rows.tokens[i]);
  summary.token_flips = SaturatingAdd(summary.token_flips, rows.flips[i]);
  summary.token_other = SaturatingAdd(summary.token_other, rows.other[i]);
}

/// Says how many elements were seen.
std::string SeenText(const ProbeCaseSummary& of) {
  if (of.unseen == 0) return fmt::format("all {} elements", of.elements);
  return fmt::format("{} of {} elements", of.elements,
                     SaturatingAdd(of.elements, of.unseen));
}

std::string MissedText(const ProbeSummary& summary) {
  if (summary.missed_share == 0) return "";
  return fmt::format(
      "; if {:.2g} % of a tensor were wrong, all of them would be missed with "
      "a "
      "chance of {:.3g} %",
      100 * summary.missed_share, 100 * runlog::kMissChance);
}

std::string WorstText(const ProbeCaseSummary& of) {
  if (!of.worst) return of.flips == 0 ? "all equal" : "rounding explains all";
  const WorstElement& worst = *of.worst;
  return fmt::format("{} [{}, {}] at step {}: {:.6g}, oracle {:.6g}",
                     worst.tensor, worst.row, worst.column, worst.step,
                     worst.value, worst.expected);
}

Spread SpreadOf(const runlog::Ensemble& ensemble, const char* quantity,
                std::vector<double> runlog::StepColumns::*column) {
  Spread spread{.quantity = quantity};
  double sum = 0;
  size_t count = 0;
  for (const runlog::EnsembleMember& member : ensemble.members) {
    const std::vector<double>& of = member.steps.*column;
    const std::vector<double>& reference = member.reference_steps.*column;
    for (size_t i = 0; i < std::min(of.size(), reference.size()); ++i) {
      const double share = (of[i] - reference[i]) / reference[i];
      sum += share;
      ++count;
      if (count > 1 && !(std::fabs(share) > std::fabs(spread.largest))) {
        continue;
      }
      spread.largest = share;
      spread.step = member.steps.step[i];
      spread.member =
          member.perturbation.empty()
              ? fmt::format("seed {}", member.seed)
              : fmt::format("{}, seed {}", member.perturbation, member.seed);
    }
  }
  if (count > 0) spread.mean = sum / static_cast<double>(count);
  return spread;
}

Document CaseMembers(const ProbeCaseSummary& of) {
  Document row;
  row.Put("case", of.name);
  row.Put("steps", of.steps);
  row.Put("tensors", of.tensors);
  row.Put("elements", of.elements);
  row.Put("unseen_elements", of.unseen);
  row.Put("flips", of.flips);
  row.Put("expected_flips", of.expected_flips);
  row.Put("other", of.other);
  row.Put("tokens", of.tokens);
  row.Put("token_flips", of.token_flips);
  row.Put("token_other", of.token_other);
  if (of.worst) {
    Document worst;
    worst.Put("tensor", of.worst->tensor);
    worst.Put("step", of.worst->step);
    worst.Put("row", of.worst->row);
    worst.Put("column", of.worst->column);
    worst.Put("value", of.worst->value);
    worst.Put("expected", of.worst->expected);
    worst.Put("ratio", of.worst->ratio);
    row.PutObject("worst", std::move(worst));
  } else {
    row.Put("worst", {});
  }
  return row;
}

Document SpreadRow(const Spread& spread) {
  Document row;
  row.Put("quantity", spread.quantity);
  row.Put("member", spread.member);
  row.Put("step", spread.step);
  row.Put("mean", spread.mean);
  row.Put("largest", spread.largest);
  row.AddField("mean, %", fmt::format("{:+.6f}", 100 * spread.mean));
  row.AddField("largest, %", fmt::format("{:+.6f}", 100 * spread.largest));
  row.AddField("where", fmt::format("{}, step {}", spread.member, spread.step));
  return row;
}

document::Table SpreadTable(const std::vector<Spread>& spreads) {
  document::Table table{.key = "spreads",
                        .columns = {{.key = "quantity",
                                     .label = "quantity",
                                     .width = 12,
                                     .is_text = true},
                                    {.label = "mean, %", .width = 13},
                                    {.label = "largest, %", .width = 13},
                                    {.label = "where", .is_text = true}},
                        .gap = 2};
  for (const Spread& spread : spreads) {
    table.rows.push_back(SpreadRow(spread));
  }
  return table;
}

}  // namespace

ProbeSummary SummarizeProbe(const runlog::ProbeLog& log) {
  ProbeSummary summary;
  summary.complete = log.provenance.complete;
  summary.total.name = "all";
  summary.unprobed = gate::UnprobedPhases(log);
  summary.missed_share = runlog::WorstMissedShare(log);
  std::vector<std::set<int64_t>> steps(log.cases.size());
  for (const std::string& name : log.cases) {
    summary.cases.emplace_back().name = name;
  }
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    const auto place = static_cast<size_t>(log.oracle.probe_case[i]);
    steps[place].insert(log.oracle.step[i]);
    AddElements(log, i, summary.cases[place]);
    AddElements(log, i, summary.total);
  }
  for (size_t i = 0; i < log.routing.step.size(); ++i) {
    const auto place = static_cast<size_t>(log.routing.probe_case[i]);
    AddTokens(log.routing, i, summary.cases[place]);
    AddTokens(log.routing, i, summary.total);
  }
  for (size_t c = 0; c < steps.size(); ++c) {
    summary.cases[c].steps = static_cast<int64_t>(steps[c].size());
    summary.total.steps += summary.cases[c].steps;
  }
  return summary;
}

Document DocumentOf(const ProbeSummary& summary) {
  Document document;
  document.Put("complete", summary.complete);
  document::Table table{
      .key = "cases",
      .columns =
          {{.key = "case", .label = "case", .width = 12, .is_text = true},
           {.key = "steps", .label = "steps", .width = 4},
           {.key = "tensors", .label = "tensors", .width = 7},
           {.key = "elements", .label = "elements", .width = 10},
           {.key = "flips", .label = "flips", .width = 8},
           {.key = "expected_flips",
            .label = "expected",
            .width = 10,
            .format = ".1f"},
           {.key = "other", .label = "other", .width = 5},
           {.key = "worst", .label = "worst tensor", .is_text = true}},
      .gap = 2};
  for (const ProbeCaseSummary& of : summary.cases) {
    Document& row = table.rows.emplace_back(CaseMembers(of));
    row.AddField("worst tensor", WorstText(of));
  }
  document.Add(std::move(table));
  const ProbeCaseSummary& total = summary.total;
  document.Say("seen         " + SeenText(total) + MissedText(summary));
  document.Put("missed_share", summary.missed_share);
  document.Say(fmt::format("routing      {} tokens, {} flips, {} other",
                           total.tokens, total.token_flips, total.token_other));
  document.PutObject("total", CaseMembers(total));
  document.Put("unprobed", summary.unprobed);
  for (const std::string& recipe : summary.unprobed) {
    document.Say(fmt::format("not probed   {}", recipe));
  }
  return document;
}

Document ProbeVerdict(const ProbeSummary& summary, const std::string& what) {
  const ProbeCaseSummary& total = summary.total;
  std::string text = fmt::format(
      "{}: rounding explains all {} flips among {} of {} tensors, and {} among "
      "{} tokens (exit code 0)",
      what, total.flips, SeenText(total), total.tensors, total.token_flips,
      total.tokens);
  if (!summary.complete) {
    text = fmt::format(
        "{}: the probe is incomplete: its own numbers ended a run before its "
        "last step, or statistics of operands that are not in MX blocks were "
        "not checked (exit code 1)",
        what);
  } else if (!summary.passed()) {
    text = fmt::format(
        "{}: rounding does not explain {} elements of {} tensors and the "
        "experts of {} tokens (exit code 1)",
        what, total.other, total.other_tensors, total.token_other);
  }
  Document document;
  document.Say((summary.passed() ? "PASS: " : "FAIL: ") + text);
  return document;
}

EnsembleSummary SummarizeEnsemble(const runlog::Ensemble& ensemble) {
  EnsembleSummary summary;
  summary.members = ensemble.members.size();
  summary.tensors = ensemble.tensors.size();
  std::set<std::string> perturbations;
  std::set<int64_t> seeds;
  std::set<int64_t> probe_steps;
  for (const runlog::EnsembleMember& member : ensemble.members) {
    if (!member.perturbation.empty()) perturbations.insert(member.perturbation);
    seeds.insert(member.seed);
    probe_steps.insert(member.precision.step.begin(),
                       member.precision.step.end());
    summary.steps =
        std::max(summary.steps, static_cast<int64_t>(member.steps.step.size()));
    summary.parameters =
        std::max(summary.parameters, member.parameters.names.size());
  }
  summary.perturbations.assign(perturbations.begin(), perturbations.end());
  summary.seeds.assign(seeds.begin(), seeds.end());
  summary.probe_steps.assign(probe_steps.begin(), probe_steps.end());
  if (summary.members == 0) return summary;
  summary.spreads = {
      SpreadOf(ensemble, "loss_nats", &runlog::StepColumns::loss_nats),
      SpreadOf(ensemble, "grad_norm", &runlog::StepColumns::grad_norm)};
  return summary;
}

Document DocumentOf(const EnsembleSummary& summary) {
  Document document;
  document.Put("members", summary.members);
  document.Put("steps", summary.steps);
  document.Put("seeds", summary.seeds);
  document.Put("perturbations", summary.perturbations);
  document.Put("parameters", summary.parameters);
  document.Put("tensors", summary.tensors);
  document.Put("probe_steps", summary.probe_steps);
  document.Say(fmt::format("members     {} of {} steps, {} seeds: {}",
                           summary.members, summary.steps, summary.seeds.size(),
                           NumbersText(summary.seeds)),
               2);
  if (!summary.perturbations.empty()) {
    document.Say(
        fmt::format("perturbed   in {} ways: {}", summary.perturbations.size(),
                    NumbersText(summary.perturbations)),
        2);
  }
  document.Say(
      fmt::format("recorded    norms of {} parameters", summary.parameters), 2);
  if (summary.tensors > 0) {
    document.Say(fmt::format("precision   {} tensors at steps {}",
                             summary.tensors, NumbersText(summary.probe_steps)),
                 2);
  }
  document.Say("");
  document.Add(SpreadTable(summary.spreads));
  return document;
}

}  // namespace isoloss::report

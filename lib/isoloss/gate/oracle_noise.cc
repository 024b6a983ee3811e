#include "isoloss/gate/oracle_noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::gate {
namespace {

/// Three checks have to share policy.flip_alpha: CheckNoise, CheckRowNoise and
/// CheckSignedError.
constexpr double kNoiseChecks = 3;

/// Returns the limit that chance sets to the root mean square of n normal
/// errors of size 1, with probability alpha at most. Probes of layouts 1 and 2
/// do not tell how unequal the variances of a tensor's elements are. Chi-square
/// is at most n + 2 sqrt(n x) + 2 x with x = ln(1 / alpha). Source   Laurent,
/// Massart, Annals of Statistics 28 (2000), lemma 1.
double ChanceOf(int64_t n, double alpha) {
  const double share = -std::log(alpha) / static_cast<double>(n);
  return std::sqrt(1 + 2 * std::sqrt(share) + 2 * share);
}

/// Whether a case has weights that are drawn, not planted. If a row or a block
/// of weights has one structure, errors fall to the same side. They reach 13
/// standard errors in a step of case hot_row of a good probe.
bool IsDrawn(std::string_view probe_case) {
  constexpr std::string_view kDrawn[] = {"plain", "tails", "branches"};
  return std::ranges::find(kDrawn, probe_case) != std::end(kDrawn);
}

/// Returns by how much the error that chance explains at exp(-x) is larger
/// than at runlog::kRowChance, which the probe has allowed for. It grows no
/// faster than sqrt(x).
double MoreChance(double x) {
  return std::sqrt(std::max(1.0, x / -std::log(runlog::kRowChance)));
}

std::vector<ProbeRow> NoisyRows(const Probes& probes) {
  std::vector<ProbeRow> rows;
  for (const Probe* probe : probes) {
    for (size_t i = 0; i < probe->log.oracle.step.size(); ++i) {
      const ProbeRow at = {probe, i};
      if (!at.IsRounded()) rows.push_back(at);
    }
  }
  return rows;
}

/// Compares ratio(row) of each row, in units of what chance explains, with the
/// policy's limit.
template <typename Ratio, typename Describe>
void JudgeRatios(const std::vector<ProbeRow>& rows, double limit,
                 const Ratio& ratio, const Describe& describe, Check& check) {
  check.value = 0.0;
  check.relation = "at most ";
  check.limit = limit;
  check.unit = "x";
  std::optional<ProbeRow> worst;
  std::optional<ProbeRow> first;  // in order of computation, of the noisy ones
  for (const ProbeRow& at : rows) {
    const double found = ratio(at);
    if (!worst || found > *check.value) {
      check.value = found;
      worst = at;
    }
    if (found <= limit) continue;
    if (!first || ComputedBefore(at, *first)) first = at;
    check.findings.push_back(
        fmt::format("{}: {:.3g} times", describe(at), found));
  }
  check.evidence = fmt::format("{} FP32 tensors", rows.size());
  if (worst) check.evidence += ", worst " + describe(*worst);
  if (!first) return;
  check.outcome = Outcome::kFail;
  check.next = fmt::format(
      "the first noisy tensor in order of computation is {}: something adds in "
      "fewer bits than FP32",
      first->Tensor());
}

/// Holds the standard errors of sums over steps.
struct SignedErrors {
  double sum = 0;
  int64_t steps = 0;
  double Mean() const { return sum / std::sqrt(static_cast<double>(steps)); }
};

/// Holds the errors of all products, and of each tensor.
struct SignedErrorsOfProducts {
  SignedErrors all;
  std::map<std::string, SignedErrors> tensors;
};

SignedErrorsOfProducts SignedErrorsOf(const Probes& probes) {
  SignedErrorsOfProducts products;
  for (const Probe* probe : probes) {
    if (!HasShape(probe->log)) continue;
    const std::vector<bool> is_product = AreProducts(probe->log);
    const auto& oracle = probe->log.oracle;
    for (const ProbeRow& at : NoisyRows({probe})) {
      const int64_t elements = oracle.noisy_elements[at.row];
      if (elements == 0 || !IsDrawn(at.Case()) ||
          !is_product[static_cast<size_t>(oracle.tensor[at.row])]) {
        continue;
      }
      for (SignedErrors* errors :
           {&products.tensors[at.Tensor()], &products.all}) {
        errors->sum += oracle.signed_error[at.row] *
                       std::sqrt(static_cast<double>(elements));
        ++errors->steps;
      }
    }
  }
  return products;
}

}  // namespace

Check CheckNoise(const Probes& probes, const Policy& policy) {
  Check check{.name = "noise",
              .outcome = Outcome::kPass,
              .quantity =
                  "largest error of FP32 tensors over that of FP32 sums, "
                  "beyond chance:"};
  const std::vector<ProbeRow> rows = NoisyRows(probes);
  const double alpha =
      policy.flip_alpha / kNoiseChecks / (static_cast<double>(rows.size()) + 1);
  const double more = MoreChance(-std::log(alpha));
  JudgeRatios(
      rows, policy.noise_ratio_limit,
      [alpha, more](const ProbeRow& at) {
        const auto& oracle = at.oracle();
        if (HasTensorNoise(at.probe->log)) {
          return oracle.tensor_noise_ratio[at.row] / more;
        }
        return oracle.noise_ratio[at.row] /
               ChanceOf(oracle.elements[at.row], alpha);
      },
      [](const ProbeRow& at) { return at.Place(); }, check);
  return check;
}

Check CheckRowNoise(const Probes& probes, const Policy& policy) {
  Check check{.name = "row_noise",
              .outcome = Outcome::kPass,
              .quantity =
                  "largest error of a row of FP32 tensors over that of FP32 "
                  "sums, beyond chance:"};
  std::vector<ProbeRow> rows;
  // This is at least the number of rows of tensors.
  double tests = 1;
  for (const ProbeRow& at : NoisyRows(probes)) {
    if (!HasShape(at.probe->log)) continue;
    rows.push_back(at);
    tests += static_cast<double>(at.oracle().elements[at.row]);
  }
  const double more =
      MoreChance(std::log(tests * kNoiseChecks / policy.flip_alpha));
  JudgeRatios(
      rows, policy.noise_ratio_limit,
      [more](const ProbeRow& at) {
        return at.oracle().row_noise_ratio[at.row] / more;
      },
      [](const ProbeRow& at) {
        return fmt::format("row {} of {}", at.oracle().noisiest_row[at.row],
                           at.Place());
      },
      check);
  check.evidence += WithoutShape(probes);
  return check;
}

Check CheckSignedError(const Probes& probes, const Policy& policy) {
  const SignedErrorsOfProducts products = SignedErrorsOf(probes);
  const auto tensors = static_cast<double>(products.tensors.size());
  // For a normal value in either direction P(|T| > t) is at most 2 exp(-t^2 /
  // 2).
  const double chance = std::sqrt(
      2 * std::log(2 * (tensors + 1) * kNoiseChecks / policy.flip_alpha));
  Check check{.name = "signed_error",
              .outcome = Outcome::kPass,
              .quantity =
                  "largest mean error of FP32 products, over the standard "
                  "error of FP32 sums and chance:",
              .value = 0.0,
              .relation = "at most ",
              .limit = policy.signed_error_limit,
              .unit = "x"};
  std::string worst;
  const auto judge = [&](const std::string& name, const SignedErrors& errors) {
    if (errors.steps == 0) return;
    const double ratio = std::fabs(errors.Mean()) / chance;
    const std::string text =
        fmt::format("{}: {:.3g} standard errors {} zero over {} steps", name,
                    std::fabs(errors.Mean()),
                    errors.sum < 0 ? "toward" : "away from", errors.steps);
    if (worst.empty() || ratio > *check.value) {
      check.value = ratio;
      worst = text;
    }
    if (!(ratio <= policy.signed_error_limit)) check.findings.push_back(text);
  };
  judge("all products", products.all);
  for (const auto& [name, errors] : products.tensors) judge(name, errors);
  check.evidence = fmt::format("{} FP32 products", products.tensors.size());
  if (!worst.empty()) check.evidence += "; worst " + worst;
  check.evidence += WithoutShape(probes);
  if (check.findings.empty()) return check;
  check.outcome = Outcome::kFail;
  check.next = "look for an accumulator that cuts off where it should round";
  return check;
}

}  // namespace isoloss::gate

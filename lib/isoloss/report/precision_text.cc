#include "isoloss/report/precision_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/document/text_layout.h"

namespace isoloss::report {
namespace {

using document::FieldLine;
using document::Heading;
using document::TextStyle;

using compare::ArmSummary;
using gate::Judgement;
using gate::PrecisionMeasures;

/// "337 k", three digits.
std::string Short(double number) {
  const char* prefix = "";
  for (const char* next : {" k", " M", " G", " T"}) {
    if (std::fabs(number) < 999.5) break;
    number /= 1000;
    prefix = next;
  }
  return fmt::format("{:.3g}{}", number, prefix);
}

std::string Trained(const compare::TrainingScale& trained) {
  std::string text = fmt::format("{} tokens for {} parameters: {:.3g} each",
                                 Short(static_cast<double>(trained.tokens)),
                                 Short(static_cast<double>(trained.parameters)),
                                 trained.TokensPerParameter());
  if (trained.active_parameters.has_value()) {
    text += fmt::format("; {} active", Short(*trained.active_parameters));
  }
  if (trained.flops.has_value()) {
    text += fmt::format("; {:.2g} FLOP a run", *trained.flops);
  }
  return text;
}

/// "bf16 4.310 (held-out 4.352)".
std::string ArmBits(const ArmSummary& arm) {
  if (!arm.final_loss_nats.has_value()) return "";
  std::string text =
      fmt::format("{} {:.3f}", arm.arm, compare::BitsOf(*arm.final_loss_nats));
  if (arm.held_out_loss_nats.has_value()) {
    text += fmt::format(" (held-out {:.3f})",
                        compare::BitsOf(*arm.held_out_loss_nats));
  }
  return text;
}

std::string Learnt(const Judgement& judgement) {
  const compare::TrainingScale& trained = judgement.precision->trained;
  const std::string candidate = ArmBits(judgement.candidate);
  if (candidate.empty()) return "";
  std::string text =
      fmt::format("{}, {} bits per {}", ArmBits(judgement.baseline), candidate,
                  trained.of_bytes ? "byte" : "token");
  std::string corpus;
  const auto append = [&](const char* name, std::optional<double> bits) {
    if (!bits.has_value()) return;
    corpus += fmt::format(
        "{}{} {:.3f}", corpus.empty() ? "; the corpus: " : ", ", name, *bits);
  };
  append("unigrams", trained.unigram_bits);
  append("bigrams", trained.bigram_bits);
  append("deflate", trained.deflated_bits);
  return text + corpus;
}

/// "+0.013": to a thousandth, without a sign of zero's.
std::string Signed(double percent) {
  return fmt::format("{:+.3f}", std::round(1000 * percent) / 1000 + 0.0);
}

/// " [-0.100 %, +0.200 %]"; "" if there is none, as of a single pair.
std::string Interval(double lower, double upper) {
  if (!std::isfinite(lower) || !std::isfinite(upper)) return "";
  return fmt::format(" [{} %, {} %]", Signed(lower), Signed(upper));
}

/// Of a mean over seeds.
std::string Mean(const stats::MeanInterval& of) {
  return fmt::format("{} %{}", Signed(of.mean), Interval(of.lower, of.upper));
}

/// `of_what` the percents are, after a space; "" for the loss.
std::string CouldSee(const gate::Sensitivity& of, const char* of_what) {
  return fmt::format(
      "{}: PASS with probability {:.2f} if there is no difference, FAIL with "
      "{:.2f} from {:.3f} %{} on ({} pairs, sd {:.3f} %)",
      of.check, of.power_at_zero, of.power, of.detectable, of_what, of.pairs,
      of.sd);
}

std::string Tokens(const PrecisionMeasures& measures) {
  const compare::TokenDifference& tokens = *measures.tokens;
  if (!tokens.unknown.empty()) {
    return "the difference in tokens is unknown: " + tokens.unknown;
  }
  return fmt::format(
      "{} % tokens{} would make up the difference, by the baseline's slope "
      "over steps {} to {}",
      Signed(tokens.percent),
      Interval(tokens.interval.lower, tokens.interval.upper),
      measures.slope->first_step, measures.slope->last_step);
}

std::string ByTenth(const compare::DifferenceByTenth& along) {
  std::vector<std::string> means;
  for (const compare::PartDifference& tenth : along.tenths) {
    means.push_back(Signed(tenth.percent.mean));
  }
  return fmt::format("{} %", fmt::join(means, " "));
}

std::string Trend(const compare::DifferenceByTenth& along) {
  std::string text;
  if (along.per_doubling.has_value()) {
    text = fmt::format("{} per doubling of tokens", Mean(*along.per_doubling));
  }
  if (along.decay.has_value()) {
    text += fmt::format("{}since the rate falls (step {}): {}",
                        text.empty() ? "" : "; ", along.decay->after.first_step,
                        Mean(along.decay->change));
  }
  return text;
}

}  // namespace

std::string ValidFor(const Judgement& judgement) {
  const compare::TrainingScale& trained = judgement.precision->trained;
  std::vector<int64_t> seeds;
  for (const auto& run : judgement.candidate.runs) seeds.push_back(run.seed);
  if (!judgement.origin.empty()) {
    return fmt::format(
        "the runs of these logs ({}) alone, {}, seed{} {}; no "
        "extrapolation to other models, sizes or longer training",
        judgement.origin, judgement.compared_steps,
        seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "));
  }
  return fmt::format(
      "this model of {} parameters, {} tokens of this corpus (digest {}), {}, "
      "seed{} {}; no extrapolation to other sizes or longer training",
      Short(static_cast<double>(trained.parameters)),
      Short(static_cast<double>(trained.tokens)), judgement.corpus_digest,
      trained.schedule, seeds.size() == 1 ? "" : "s", fmt::join(seeds, ", "));
}

std::string RenderPrecision(const Judgement& judgement,
                            const TextStyle& style) {
  if (!judgement.precision.has_value()) return "";
  const PrecisionMeasures& measures = *judgement.precision;
  std::string text =
      Heading(fmt::format("What this verdict rests on{}",
                          measures.along.has_value()
                              ? fmt::format(" ({:g} % intervals over seeds)",
                                            100 * (1 - 2 * measures.alpha))
                              : ""),
              style);
  const auto line = [&](const char* name, const std::string& value) {
    text += FieldLine(name, value, style);
  };
  if (judgement.origin.empty()) {
    line("trained", Trained(measures.trained));
    line("learnt", Learnt(judgement));
  }
  const char* of_what = judgement.policy.InTokens() ? " tokens" : "";
  for (const gate::Sensitivity& of : measures.sensitivity) {
    line(&of == &measures.sensitivity.front() ? "could see" : "",
         CouldSee(of, of_what));
  }
  if (measures.tokens.has_value()) line("tokens", Tokens(measures));
  if (measures.along.has_value()) {
    line("by tenth", ByTenth(*measures.along));
    line("trend", Trend(*measures.along));
  }
  line("valid for", ValidFor(judgement));
  return text;
}

}  // namespace isoloss::report

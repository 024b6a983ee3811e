#include "isoloss/report/precision_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/stats/summary.h"

namespace isoloss::report {
namespace {

using compare::ArmSummary;
using document::Document;
using gate::Judgement;
using gate::PrecisionMeasures;

/// Returns "337 k", with three digits.
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

/// Returns "bf16 4.310 (held-out 4.352)".
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

/// Returns "+0.013", rounded to a thousandth; a zero gets no minus sign.
std::string Signed(double percent) {
  return fmt::format("{:+.3f}", std::round(1000 * percent) / 1000 + 0.0);
}

/// Returns " [-0.100 %, +0.200 %]"; "" if there is no interval, as for a single
/// pair.
std::string Interval(double lower, double upper) {
  if (!std::isfinite(lower) || !std::isfinite(upper)) return "";
  return fmt::format(" [{} %, {} %]", Signed(lower), Signed(upper));
}

/// Returns the text of a mean over seeds.
std::string Mean(const stats::MeanInterval& of) {
  return fmt::format("{} %{}", Signed(of.mean), Interval(of.lower, of.upper));
}

/// `of_what` says what the percents are of, after a space; "" for the loss.
std::string CouldSee(const gate::Sensitivity& of, const char* of_what) {
  return fmt::format(
      "{}: PASS with probability {:.2f} if there is no difference, FAIL with "
      "{:.2f} from {:.3f} %{} on ({} pairs, sd {:.3f} %, at most {:.3f} % with "
      "{:g} % confidence)",
      of.check, of.power_at_zero, of.power, of.detectable, of_what, of.pairs,
      of.sd, of.sd_limit, 100 * gate::kSpreadConfidence);
}

/// Returns the tokens, in %, that would make up a gap of one margin of the
/// loss. Empty if that is unknown, or if the margin is one of tokens.
std::optional<double> MarginInTokens(const Judgement& judgement) {
  const auto& slope = judgement.precision->slope;
  const std::optional<double>& loss = judgement.baseline.final_loss_nats;
  if (!slope || !loss || judgement.policy.InTokens()) return {};
  return compare::TokensFor(judgement.policy.margin_percent / 100 * *loss,
                            *slope);
}

std::string Tokens(const Judgement& judgement) {
  const PrecisionMeasures& measures = *judgement.precision;
  const compare::TokenDifference& tokens = *measures.tokens;
  if (!tokens.unknown.empty()) {
    return "the difference in tokens is unknown: " + tokens.unknown;
  }
  std::string text = fmt::format(
      "{} % tokens{} would make up the difference, by the baseline's slope "
      "over steps {} to {}",
      Signed(tokens.percent),
      Interval(tokens.interval.lower, tokens.interval.upper),
      measures.slope->first_step, measures.slope->last_step);
  if (const auto margin = MarginInTokens(judgement)) {
    text += fmt::format("; the margin is {:.2g} % of the tokens", *margin);
  }
  return text;
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

// ---- for programs ----------------------------------------------------------

Document MeanDocument(const stats::MeanInterval& interval) {
  Document document;
  document.Put("mean", interval.mean);
  document.Put("lower", interval.lower);
  document.Put("upper", interval.upper);
  return document;
}

Document PartDocument(const compare::PartDifference& part) {
  Document document;
  document.Put("first_step", part.first_step);
  document.Put("last_step", part.last_step);
  document.PutObject("percent", MeanDocument(part.percent));
  return document;
}

void PutAlong(const compare::DifferenceByTenth& along, Document& precision) {
  Document document;
  document.PutEach("tenths", along.tenths, PartDocument);
  if (along.per_doubling) {
    document.PutObject("percent_per_doubling",
                       MeanDocument(*along.per_doubling));
  } else {
    document.Put("percent_per_doubling", {});
  }
  if (along.decay) {
    Document decay;
    decay.PutObject("before", PartDocument(along.decay->before));
    decay.PutObject("after", PartDocument(along.decay->after));
    decay.PutObject("change", MeanDocument(along.decay->change));
    document.PutObject("decay", std::move(decay));
  } else {
    document.Put("decay", {});
  }
  precision.PutObject("along", std::move(document));
}

void PutTokens(const Judgement& judgement, Document& precision) {
  const PrecisionMeasures& measures = *judgement.precision;
  if (!measures.tokens) return precision.Put("tokens", {});
  const compare::TokenDifference& tokens = *measures.tokens;
  Document document;
  if (!tokens.unknown.empty()) {
    document.Put("unknown", tokens.unknown);
  } else {
    document.Put("percent", tokens.percent);
    document.Put("lower", tokens.interval.lower);
    document.Put("upper", tokens.interval.upper);
    document.Put("slope_nats", stats::Mean(measures.slope->nats));
    document.Put("slope_first_step", measures.slope->first_step);
    document.Put("slope_last_step", measures.slope->last_step);
    document.Put("margin", MarginInTokens(judgement));
  }
  precision.PutObject("tokens", std::move(document));
}

Document TrainedDocument(const compare::TrainingScale& trained) {
  Document document;
  document.Put("tokens", trained.tokens);
  document.Put("parameters", trained.parameters);
  document.Put("tokens_per_parameter", trained.TokensPerParameter());
  document.Put("active_parameters", trained.active_parameters);
  document.Put("flops", trained.flops);
  document.Put("schedule", trained.schedule);
  document.Put("bits_per", trained.of_bytes ? "byte" : "token");
  document.Put("unigram_bits", trained.unigram_bits);
  document.Put("bigram_bits", trained.bigram_bits);
  document.Put("deflated_bits", trained.deflated_bits);
  return document;
}

Document SensitivityDocument(const gate::Sensitivity& of) {
  Document document;
  document.Put("check", of.check);
  document.Put("pairs", of.pairs);
  document.Put("sd", of.sd);
  document.Put("sd_limit", of.sd_limit);
  document.Put("alpha", of.alpha);
  document.Put("margin", of.margin);
  document.Put("power_at_zero", of.power_at_zero);
  document.Put("detectable", of.detectable);
  document.Put("power", of.power);
  return document;
}

/// Returns the mean loss of an arm, in bits; null if it has none.
Document LearntDocument(const ArmSummary& arm) {
  const auto bits = [](const std::optional<double>& nats) {
    return nats ? std::optional(compare::BitsOf(*nats)) : std::nullopt;
  };
  Document document;
  document.Put("arm", arm.arm);
  document.Put("final_bits", bits(arm.final_loss_nats));
  document.Put("held_out_bits", bits(arm.held_out_loss_nats));
  return document;
}

void AddForPrograms(const Judgement& judgement, Document& document) {
  const PrecisionMeasures& measures = *judgement.precision;
  document.PutObject("trained", TrainedDocument(measures.trained));
  document.PutEach("learnt",
                   std::vector{judgement.baseline, judgement.candidate},
                   LearntDocument);
  document.PutEach("sensitivity", measures.sensitivity, SensitivityDocument);
  document.Put("alpha", measures.alpha);
  document.Put("alpha_shared_by", judgement.policy.sharing);
  PutTokens(judgement, document);
  if (measures.along) {
    PutAlong(*measures.along, document);
  } else {
    document.Put("along", {});
  }
  document.Put("valid_for", ValidFor(judgement));
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

Document PrecisionDocument(const Judgement& judgement) {
  const PrecisionMeasures& measures = *judgement.precision;
  Document document;
  AddForPrograms(judgement, document);
  document.Add(document::Title{fmt::format(
      "What this verdict rests on{}",
      measures.along.has_value() ? fmt::format(" ({:g} % intervals over seeds)",
                                               100 * (1 - 2 * measures.alpha))
                                 : "")});
  if (judgement.origin.empty()) {
    document.AddField("trained", Trained(measures.trained));
    document.AddField("learnt", Learnt(judgement));
  }
  if (judgement.policy.sharing > 1) {
    document.AddField(
        "alpha", fmt::format("{:g} is shared with Holm's procedure; {} "
                             "candidates had to share it here",
                             judgement.policy.alpha, judgement.policy.sharing));
  }
  const char* of_what = judgement.policy.InTokens() ? " tokens" : "";
  for (const gate::Sensitivity& of : measures.sensitivity) {
    document.AddField(&of == &measures.sensitivity.front() ? "could see" : "",
                      CouldSee(of, of_what));
  }
  if (measures.tokens) document.AddField("tokens", Tokens(judgement));
  if (measures.along) {
    document.AddField("by tenth", ByTenth(*measures.along));
    document.AddField("trend", Trend(*measures.along));
  }
  document.AddField("valid for", ValidFor(judgement));
  return document;
}

}  // namespace isoloss::report

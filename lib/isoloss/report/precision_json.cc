#include "isoloss/report/precision_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "isoloss/report/precision_text.h"
#include "isoloss/stats/summary.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

Json MeanJson(const stats::MeanInterval& interval) {
  Json json = Json::object();
  PutNumber(json, "mean", interval.mean);
  PutNumber(json, "lower", interval.lower);
  PutNumber(json, "upper", interval.upper);
  return json;
}

Json PartJson(const compare::PartDifference& part) {
  return {{"first_step", part.first_step},
          {"last_step", part.last_step},
          {"percent", MeanJson(part.percent)}};
}

Json AlongJson(const std::optional<compare::DifferenceByTenth>& along) {
  if (!along.has_value()) return nullptr;
  Json json{{"tenths", Json::array()},
            {"percent_per_doubling", nullptr},
            {"decay", nullptr}};
  for (const auto& tenth : along->tenths) {
    json["tenths"].push_back(PartJson(tenth));
  }
  if (along->per_doubling.has_value()) {
    json["percent_per_doubling"] = MeanJson(*along->per_doubling);
  }
  if (along->decay.has_value()) {
    json["decay"] = {{"before", PartJson(along->decay->before)},
                     {"after", PartJson(along->decay->after)},
                     {"change", MeanJson(along->decay->change)}};
  }
  return json;
}

Json TokensJson(const gate::PrecisionMeasures& measures) {
  if (!measures.tokens.has_value()) return nullptr;
  const compare::TokenDifference& tokens = *measures.tokens;
  if (!tokens.unknown.empty()) return {{"unknown", tokens.unknown}};
  const compare::TokenSlope& slope = *measures.slope;
  Json json = Json::object();
  PutNumber(json, "percent", tokens.percent);
  PutNumber(json, "lower", tokens.interval.lower);
  PutNumber(json, "upper", tokens.interval.upper);
  PutNumber(json, "slope_nats", stats::Mean(slope.nats));
  json["slope_first_step"] = slope.first_step;
  json["slope_last_step"] = slope.last_step;
  return json;
}

Json TrainedJson(const compare::TrainingScale& trained) {
  Json json{{"tokens", trained.tokens}, {"parameters", trained.parameters}};
  PutNumber(json, "tokens_per_parameter", trained.TokensPerParameter());
  PutNumber(json, "active_parameters", trained.active_parameters);
  PutNumber(json, "flops", trained.flops);
  json["schedule"] = trained.schedule;
  json["bits_per"] = trained.of_bytes ? "byte" : "token";
  PutNumber(json, "unigram_bits", trained.unigram_bits);
  PutNumber(json, "bigram_bits", trained.bigram_bits);
  PutNumber(json, "deflated_bits", trained.deflated_bits);
  return json;
}

Json SensitivityJson(const gate::Sensitivity& of) {
  Json json{{"check", of.check}, {"pairs", of.pairs}};
  PutNumber(json, "sd", of.sd);
  PutNumber(json, "alpha", of.alpha);
  PutNumber(json, "margin", of.margin);
  PutNumber(json, "power_at_zero", of.power_at_zero);
  PutNumber(json, "detectable", of.detectable);
  PutNumber(json, "power", of.power);
  return json;
}

/// Mean loss of an arm, in bits; null if it has none.
Json LearntArmJson(const compare::ArmSummary& arm) {
  const auto bits = [](const std::optional<double>& nats) {
    return nats.has_value() ? std::optional(compare::BitsOf(*nats))
                            : std::nullopt;
  };
  Json json{{"arm", arm.arm}};
  PutNumber(json, "final_bits", bits(arm.final_loss_nats));
  PutNumber(json, "held_out_bits", bits(arm.held_out_loss_nats));
  return json;
}

}  // namespace

Json PrecisionJson(const gate::Judgement& judgement) {
  if (!judgement.precision.has_value()) return nullptr;
  const gate::PrecisionMeasures& measures = *judgement.precision;
  Json json{
      {"trained", TrainedJson(measures.trained)},
      {"learnt",
       {LearntArmJson(judgement.baseline), LearntArmJson(judgement.candidate)}},
      {"sensitivity", Json::array()}};
  for (const gate::Sensitivity& of : measures.sensitivity) {
    json["sensitivity"].push_back(SensitivityJson(of));
  }
  json["alpha"] = measures.alpha;
  json["tokens"] = TokensJson(measures);
  json["along"] = AlongJson(measures.along);
  json["valid_for"] = ValidFor(judgement);
  return json;
}

}  // namespace isoloss::report

#include "isoloss/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/document/json.h"
#include "isoloss/report/controls.h"
#include "isoloss/report/precision_json.h"
#include "isoloss/report/reading.h"

namespace isoloss::report {
namespace {

using document::Json;
using document::PutNumber;

/// Takes each key of a policy as Visit describes it.
struct PolicyFields {
  Json json = Json::object();

  void Put(std::string_view key, const auto& value) {
    json[std::string(key)] = value;
  }
  void Choice(std::string_view key, compare::Question question, auto&&...) {
    Put(key, gate::QuestionName(question));
  }
  void Real(std::string_view key, double value, auto&&...) { Put(key, value); }
  void Integer(std::string_view key, int64_t value, auto&&...) {
    Put(key, value);
  }
  void Flag(std::string_view key, bool value) { Put(key, value); }
  void Words(std::string_view key, const std::vector<std::string>& words,
             auto&&, std::string_view none = "") {
    if (words.empty()) return Put(key, none);
    Put(key, words);
  }
};

Json PolicyJson(gate::Policy policy) {
  PolicyFields fields;
  Visit(fields, policy);
  return fields.json;
}

Json LevelsJson(const std::vector<gate::LevelOutcome>& levels) {
  Json list = Json::array();
  for (const gate::LevelOutcome& level : levels) {
    Json json{{"id", level.name}, {"outcome", nullptr}};
    if (level.outcome.has_value()) {
      json["outcome"] = gate::OutcomeName(*level.outcome);
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json FindingsJson(const std::vector<gate::TensorFinding>& tensors) {
  Json list = Json::array();
  for (const gate::TensorFinding& finding : tensors) {
    Json json{{"tensor", finding.tensor},
              {"statistic", finding.statistic},
              {"step", finding.step}};
    PutNumber(json, "z", finding.z);
    PutNumber(json, "adjusted_p", finding.adjusted_p);
    list.push_back(std::move(json));
  }
  return list;
}

Json CheckJson(const gate::Check& check) {
  Json json{{"level", check.level},
            {"name", check.name},
            {"outcome", gate::OutcomeName(check.outcome)},
            {"quantity", check.quantity}};
  PutNumber(json, "value", check.value);
  json["relation"] = check.relation;
  PutNumber(json, "limit", check.limit);
  PutNumber(json, "lower", check.lower);
  PutNumber(json, "upper", check.upper);
  PutNumber(json, "interval_level", check.interval_level);
  json["unit"] = check.unit;
  json["evidence"] = check.evidence;
  json["findings"] = check.findings;
  json["next"] = check.next;
  json["gates"] = check.gates;
  return json;
}

Json ArmJson(const compare::ArmSummary& arm) {
  Json json{{"arm", arm.arm}, {"recipe", arm.recipe}};
  PutNumber(json, "final_loss_nats", arm.final_loss_nats);
  PutNumber(json, "held_out_loss_nats", arm.held_out_loss_nats);
  PutNumber(json, "final_grad_norm", arm.final_grad_norm);
  PutNumber(json, "final_load_max_over_mean", arm.final_load_max_over_mean);
  PutNumber(json, "final_dead_experts", arm.final_dead_experts);
  PutNumber(json, "steps_per_second", arm.steps_per_second);
  json["quantized_gemms_per_step"] = arm.quantized_gemms_per_step;
  json["gemms_per_step"] = arm.gemms_per_step;
  PutNumber(json, "percent_below_unigram", arm.percent_below_unigram);
  PutNumber(json, "percent_above_floor", arm.percent_above_floor);
  json["runs"] = Json::array();
  for (const compare::RunRecord& run : arm.runs) {
    json["runs"].push_back(
        {{"file", run.file},
         {"seed", run.seed},
         {"steps", run.steps},
         {"complete", run.complete},
         {"initial_weights_digest", run.initial_weights_digest},
         {"final_weights_digest", run.final_weights_digest}});
  }
  return json;
}

Json SeedJson(const compare::SeedDifference& seed) {
  Json json{{"seed", seed.seed}};
  PutNumber(json, "final_window_percent", 100 * seed.final_window);
  PutNumber(json, "held_out_percent",
            seed.held_out.has_value() ? std::optional(100 * *seed.held_out)
                                      : std::nullopt);
  PutNumber(json, "final_window_nats", seed.final_window_nats);
  PutNumber(json, "last_100_nats", seed.last_100_nats);
  PutNumber(json, "trajectory_rmse_nats", seed.trajectory_rmse_nats);
  PutNumber(json, "max_gap_nats", seed.max_gap_nats);
  json["max_gap_step"] = seed.max_gap_step;
  return json;
}

Json FinalWindowJson(const std::optional<compare::FinalWindow>& window) {
  if (!window.has_value()) return nullptr;
  Json json{{"first_step", window->first_step},
            {"last_step", window->last_step},
            {"held_out_step", nullptr},
            {"seeds", Json::array()}};
  if (window->held_out_step.has_value()) {
    json["held_out_step"] = *window->held_out_step;
  }
  for (const auto& seed : window->seeds) {
    json["seeds"].push_back(SeedJson(seed));
  }
  return json;
}

Json DivergencesJson(const std::vector<gate::SeedDivergence>& divergences) {
  Json list = Json::array();
  for (const gate::SeedDivergence& divergence : divergences) {
    Json json{{"seed", divergence.seed}, {"step", nullptr}};
    if (divergence.first.has_value()) {
      json["step"] = divergence.first->step;
      json["equal_until"] = divergence.equal_until;
      json["equal_values"] = divergence.equal_values;
      json["quantity"] = divergence.first->quantity;
      PutNumber(json, "baseline", divergence.first->baseline);
      PutNumber(json, "candidate", divergence.first->candidate);
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json LooksJson(const std::optional<gate::Looks>& looks) {
  if (!looks.has_value()) return nullptr;
  if (looks->taken.empty()) return {{"unknown", looks->unknown}};
  Json taken = Json::array();
  for (const gate::Looks::Taken& look : looks->taken) {
    taken.push_back(
        {{"pairs", look.pairs}, {"nominal_alpha", look.nominal_alpha}});
  }
  return {{"planned", looks->planned},
          {"taken", std::move(taken)},
          {"nominal_alpha", looks->taken.back().nominal_alpha},
          {"note", looks->note}};
}

Json ReadingJson(const gate::Judgement& judgement) {
  const Reading reading = ReadingOf(judgement);
  return {{"headline", reading.headline},
          {"reasons", reading.reasons},
          {"could_have_seen", reading.could_have_seen},
          {"holds_for", reading.holds_for},
          {"next", reading.next}};
}

Json PeersJson(const std::vector<gate::PeerOpinion>& peers) {
  Json list = Json::array();
  for (const gate::PeerOpinion& peer : peers) {
    list.push_back({{"name", peer.name},
                    {"rule", peer.rule},
                    {"source", peer.source},
                    {"accepted", peer.accepted},
                    {"judged", peer.judged}});
  }
  return list;
}

Json Sealed(Json json) {
  json["digest"] = VerdictDigest(json);
  return json;
}

/// File names are bytes of the system's choice: what is not UTF-8 is replaced.
std::string TextOf(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string VerdictDigest(Json verdict) {
  verdict.erase("digest");
  return DigestToHex(
      DigestOf(verdict.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

Json VerdictJson(const gate::Judgement& judgement) {
  Json json{{"schema_version", kVerdictSchemaVersion},
            {"outcome", gate::OutcomeName(judgement.outcome)},
            {"exit_code", gate::ExitCode(judgement.outcome)},
            {"reading", ReadingJson(judgement)},
            {"experiment", judgement.experiment},
            {"tool_version", judgement.tool_version},
            {"commit", judgement.commit},
            {"experiment_digest", judgement.experiment_digest},
            {"config_digest", judgement.config_digest},
            {"corpus", judgement.corpus},
            {"corpus_digest", judgement.corpus_digest},
            {"steps_planned", judgement.steps_planned},
            {"tokens_per_step", judgement.tokens_per_step},
            {"parameters", judgement.parameters}};
  PutNumber(json, "unigram_entropy_nats", judgement.unigram_entropy_nats);
  PutNumber(json, "entropy_floor_nats", judgement.entropy_floor_nats);
  json["policy"] = PolicyJson(judgement.policy);
  json["policy_digest"] = gate::PolicyDigest(judgement.policy);
  json["margin_source"] = judgement.policy.margin_source.empty()
                              ? "default"
                              : judgement.policy.margin_source;
  json["evidence"] = judgement.evidence;
  json["looks"] = LooksJson(judgement.looks);
  json["baseline"] = ArmJson(judgement.baseline);
  json["candidate"] = ArmJson(judgement.candidate);
  json["levels"] = LevelsJson(judgement.levels);
  json["levels_without_evidence"] = judgement.WithoutEvidence();
  json["checks"] = Json::array();
  for (const auto& check : judgement.checks) {
    json["checks"].push_back(CheckJson(check));
  }
  json["measures"] = Json::array();
  for (const gate::Measure& measure : judgement.measures) {
    Json entry{{"name", measure.name}};
    PutNumber(entry, "value", measure.value);
    entry["unit"] = measure.unit;
    entry["evidence"] = measure.evidence;
    json["measures"].push_back(std::move(entry));
  }
  json["tensors"] = FindingsJson(judgement.tensors);
  json["controls"] = ControlsJson(judgement);
  json["final_window"] = FinalWindowJson(judgement.final_window);
  json["precision"] = PrecisionJson(judgement);
  json["first_divergences"] = DivergencesJson(judgement.divergences);
  json["warnings"] = judgement.warnings;
  if (!judgement.origin.empty()) {
    json["origin"] = judgement.origin;
    json["peers"] = PeersJson(judgement.peers);
  }
  return Sealed(std::move(json));
}

std::string RenderJson(const gate::Judgement& judgement) {
  return TextOf(VerdictJson(judgement));
}

std::string RenderJson(std::span<const gate::Judgement> judgements) {
  ISOLOSS_ASSERT(!judgements.empty());
  if (judgements.size() == 1) return RenderJson(judgements.front());
  gate::Outcome severest = gate::Outcome::kPass;
  Json verdicts = Json::array();
  for (const gate::Judgement& judgement : judgements) {
    severest = std::max(severest, judgement.outcome);
    verdicts.push_back(VerdictJson(judgement));
  }
  return TextOf(Sealed({{"schema_version", kVerdictSchemaVersion},
                        {"outcome", gate::OutcomeName(severest)},
                        {"exit_code", gate::ExitCode(severest)},
                        {"verdicts", std::move(verdicts)}}));
}

void WriteJson(std::span<const gate::Judgement> judgements,
               const std::filesystem::path& path) {
  const std::string text = RenderJson(judgements);
  WriteFileAtomically(path, text);
}

}  // namespace isoloss::report

#include "isoloss/report/verdict_members.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/report/json.h"
#include "isoloss/report/verdict_result.h"

namespace isoloss::report {
namespace {

using document::Document;
using gate::Judgement;

/// Takes each key of a policy as Visit describes it.
struct PolicyMembers {
  Document document;

  void Put(std::string_view key, document::Value value) {
    document.Put(std::string(key), std::move(value));
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

Document PolicyDocument(gate::Policy policy) {
  PolicyMembers members;
  Visit(members, policy);
  return std::move(members.document);
}

Document LevelMembers(const gate::LevelOutcome& level) {
  Document document;
  document.Put("id", level.name);
  document.Put("outcome", level.outcome ? document::Value(
                                              gate::OutcomeName(*level.outcome))
                                        : document::Value());
  return document;
}

Document RunMembers(const compare::RunRecord& run) {
  Document document;
  document.Put("file", run.file);
  document.Put("seed", run.seed);
  document.Put("steps", run.steps);
  document.Put("complete", run.complete);
  document.Put("initial_weights_digest", run.initial_weights_digest);
  document.Put("final_weights_digest", run.final_weights_digest);
  return document;
}

Document ArmMembers(const compare::ArmSummary& arm) {
  Document document;
  document.Put("arm", arm.arm);
  document.Put("recipe", arm.recipe);
  document.Put("final_loss_nats", arm.final_loss_nats);
  document.Put("held_out_loss_nats", arm.held_out_loss_nats);
  document.Put("final_grad_norm", arm.final_grad_norm);
  document.Put("final_load_max_over_mean", arm.final_load_max_over_mean);
  document.Put("final_dead_experts", arm.final_dead_experts);
  document.Put("steps_per_second", arm.steps_per_second);
  document.Put("quantized_gemms_per_step", arm.quantized_gemms_per_step);
  document.Put("gemms_per_step", arm.gemms_per_step);
  document.Put("percent_below_unigram", arm.percent_below_unigram);
  document.Put("percent_above_floor", arm.percent_above_floor);
  document.PutEach("runs", arm.runs, RunMembers);
  return document;
}

Document SeedMembers(const compare::SeedDifference& seed) {
  Document document;
  document.Put("seed", seed.seed);
  document.Put("final_window_percent", 100 * seed.final_window);
  document.Put("held_out_percent", seed.held_out
                                       ? std::optional(100 * *seed.held_out)
                                       : std::nullopt);
  document.Put("final_window_nats", seed.final_window_nats);
  document.Put("last_100_nats", seed.last_100_nats);
  document.Put("trajectory_rmse_nats", seed.trajectory_rmse_nats);
  document.Put("max_gap_nats", seed.max_gap_nats);
  document.Put("max_gap_step", seed.max_gap_step);
  return document;
}

void PutFinalWindow(const Judgement& judgement, Document& document) {
  if (!judgement.final_window) return document.Put("final_window", {});
  const compare::FinalWindow& of = *judgement.final_window;
  Document window;
  window.Put("first_step", of.first_step);
  window.Put("last_step", of.last_step);
  window.Put("held_out_step", of.held_out_step);
  window.PutEach("seeds", of.seeds, SeedMembers);
  document.PutObject("final_window", std::move(window));
}

Document DivergenceMembers(const gate::SeedDivergence& of) {
  Document document;
  document.Put("seed", of.seed);
  if (!of.first) {
    document.Put("step", {});
    return document;
  }
  document.Put("step", of.first->step);
  document.Put("equal_until", of.equal_until);
  document.Put("equal_values", of.equal_values);
  document.Put("quantity", of.first->quantity);
  document.Put("baseline", of.first->baseline);
  document.Put("candidate", of.first->candidate);
  return document;
}

void PutLooks(const Judgement& judgement, Document& document) {
  if (!judgement.looks) return document.Put("looks", {});
  const gate::Looks& of = *judgement.looks;
  Document looks;
  if (of.taken.empty()) {
    looks.Put("unknown", of.unknown);
  } else {
    looks.Put("planned", of.planned);
    looks.PutEach("taken", of.taken, [](const gate::Looks::Taken& look) {
      Document taken;
      taken.Put("pairs", look.pairs);
      taken.Put("nominal_alpha", look.nominal_alpha);
      return taken;
    });
    looks.Put("nominal_alpha", of.taken.back().nominal_alpha);
    looks.Put("note", of.note);
  }
  document.PutObject("looks", std::move(looks));
}

Document ReadingMembers(const document::Result& result) {
  Document document;
  document.Put("headline", result.headline);
  document.Put("reasons", result.reasons);
  document.Put("could_have_seen", result.could_have_seen);
  document.Put("holds_for", result.holds_for);
  document.Put("next", result.next);
  return document;
}

void PutOrigins(const Judgement& judgement, Document& document) {
  document.Put("experiment", judgement.experiment);
  document.Put("tool_version", judgement.tool_version);
  document.Put("commit", judgement.commit);
  document.Put("experiment_digest", judgement.experiment_digest);
  document.Put("config_digest", judgement.config_digest);
  document.Put("corpus", judgement.corpus);
  document.Put("corpus_digest", judgement.corpus_digest);
  document.Put("steps_planned", judgement.steps_planned);
  document.Put("tokens_per_step", judgement.tokens_per_step);
  document.Put("parameters", judgement.parameters);
  document.Put("unigram_entropy_nats", judgement.unigram_entropy_nats);
  document.Put("entropy_floor_nats", judgement.entropy_floor_nats);
}

}  // namespace

Document VerdictMembers(const Judgement& judgement) {
  const gate::Policy& policy = judgement.policy;
  Document document;
  document.Put("schema_version", kVerdictSchemaVersion);
  document.Put("outcome", gate::OutcomeName(judgement.outcome));
  document.Put("exit_code", gate::ExitCode(judgement.outcome));
  document.PutObject("reading", ReadingMembers(ResultOf(judgement, "")));
  PutOrigins(judgement, document);
  document.PutObject("policy", PolicyDocument(policy));
  document.Put("policy_digest", gate::PolicyDigest(policy));
  document.Put("margin_source",
               policy.margin_source.empty() ? "default" : policy.margin_source);
  document.Put("evidence", judgement.evidence);
  PutLooks(judgement, document);
  document.PutObject("baseline", ArmMembers(judgement.baseline));
  document.PutObject("candidate", ArmMembers(judgement.candidate));
  document.PutEach("levels", judgement.levels, LevelMembers);
  document.Put("levels_without_evidence", judgement.WithoutEvidence());
  PutFinalWindow(judgement, document);
  document.PutEach("first_divergences", judgement.divergences,
                   DivergenceMembers);
  return document;
}

Document CheckMembers(const gate::Check& check) {
  Document document;
  document.Put("level", check.level);
  document.Put("name", check.name);
  document.Put("outcome", gate::OutcomeName(check.outcome));
  document.Put("quantity", check.quantity);
  document.Put("value", check.value);
  document.Put("relation", check.relation);
  document.Put("limit", check.limit);
  document.Put("lower", check.lower);
  document.Put("upper", check.upper);
  document.Put("interval_level", check.interval_level);
  document.Put("unit", check.unit);
  document.Put("evidence", check.evidence);
  document.Put("findings", check.findings);
  document.Put("next", check.next);
  document.Put("gates", check.gates);
  return document;
}

Document TensorMembers(const gate::TensorFinding& finding) {
  Document document;
  document.Put("tensor", finding.tensor);
  document.Put("statistic", finding.statistic);
  document.Put("step", finding.step);
  document.Put("z", finding.z);
  document.Put("adjusted_p", finding.adjusted_p);
  return document;
}

Document PeerMembers(const gate::PeerOpinion& peer) {
  Document document;
  document.Put("name", peer.name);
  document.Put("rule", peer.rule);
  document.Put("source", peer.source);
  document.Put("accepted", peer.accepted);
  document.Put("judged", peer.judged);
  return document;
}

}  // namespace isoloss::report

// Knows the names that programs give to losses, rates and norms.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/named.h"
#include "isoloss/foreign/foreign_run.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr Named<KnownName> kNames[] = {
    {"lm loss", {Quantity::kLoss, 0}},
    {"loss_metrics/global_avg_loss", {Quantity::kLoss, 0}},
    {"loss", {Quantity::kLoss, 1}},
    {"train_loss_step", {Quantity::kLoss, 1}},
    {"reduced_train_loss", {Quantity::kLoss, 0}},
    {"train_loss", {Quantity::kLoss, 2}},
    {"learning/loss", {Quantity::kLoss, 2}},
    {"train/loss", {Quantity::kLoss, 2}},
    {"train loss", {Quantity::kLoss, 3}},
    {"lm-loss", {Quantity::kLoss, 3}},
    {"training_loss", {Quantity::kLoss, 3}},
    {"lm_loss", {Quantity::kLoss, 3}},
    {"Loss/train", {Quantity::kLoss, 3}},
    {"loss_nats", {Quantity::kLoss, 3}},
    {"loss/train", {Quantity::kLoss, 3}},
    {"training loss", {Quantity::kLoss, 3}},
    {"train/CrossEntropyLoss", {Quantity::kLoss, 3}},
    {"CrossEntropyLoss", {Quantity::kLoss, 3}},
    {"train/CE loss", {Quantity::kLoss, 3}},
    {"train/cross_entropy", {Quantity::kLoss, 3}},
    {"loss/train/total", {Quantity::kLoss, 3}},
    {"loss train", {Quantity::kLoss, 3}},
    {"main_model_loss", {Quantity::kLoss, 4}},
    {"train/cross_entropy_loss", {Quantity::kLoss, 3}},
    {"train/ce_loss", {Quantity::kLoss, 3}},
    {"cross_entropy_loss", {Quantity::kLoss, 3}},
    {"cross-entropy-loss", {Quantity::kLoss, 3}},
    {"ce_loss", {Quantity::kLoss, 3}},
    {"Loss", {Quantity::kLoss, 4}},
    {"Train Loss", {Quantity::kLoss, 4}},
    {"Training Loss", {Quantity::kLoss, 4}},
    {"Train/Loss", {Quantity::kLoss, 4}},
    {"Train/loss", {Quantity::kLoss, 4}},
    {"loss_mean", {Quantity::kLoss, 4}},
    {"loss.mean", {Quantity::kLoss, 4}},
    {"loss/mean", {Quantity::kLoss, 4}},
    {"loss.avg", {Quantity::kLoss, 4}},
    {"loss/avg", {Quantity::kLoss, 4}},
    {"train/mean_loss", {Quantity::kLoss, 4}},
    {"train/loss_mean", {Quantity::kLoss, 4}},
    {"train/avg_loss", {Quantity::kLoss, 4}},
    {"train/loss_avg", {Quantity::kLoss, 4}},
    {"mean_loss", {Quantity::kLoss, 4}},
    {"loss_avg", {Quantity::kLoss, 4}},
    {"avg_loss", {Quantity::kLoss, 4}},
    {"val_loss", {Quantity::kEvalLoss, 1}},
    {"val loss", {Quantity::kEvalLoss, 1}},
    {"val/loss", {Quantity::kEvalLoss, 1}},
    {"eval_loss", {Quantity::kEvalLoss, 1}},
    {"eval/loss", {Quantity::kEvalLoss, 1}},
    {"validation loss", {Quantity::kEvalLoss, 1}},
    {"validation_loss", {Quantity::kEvalLoss, 1}},
    {"validation_metrics/loss", {Quantity::kEvalLoss, 0}},
    {"lm loss validation", {Quantity::kEvalLoss, 0}},
    {"validation/loss", {Quantity::kEvalLoss, 1}},
    {"valid/loss", {Quantity::kEvalLoss, 1}},
    {"eval/cross_entropy_loss", {Quantity::kEvalLoss, 2}},
    {"val/cross_entropy_loss", {Quantity::kEvalLoss, 2}},
    {"loss/val", {Quantity::kEvalLoss, 2}},
    {"Loss/val", {Quantity::kEvalLoss, 2}},
    {"loss/validation", {Quantity::kEvalLoss, 2}},
    {"Loss/validation", {Quantity::kEvalLoss, 2}},
    {"valid_loss", {Quantity::kEvalLoss, 2}},
    {"eval/CrossEntropyLoss", {Quantity::kEvalLoss, 2}},
    {"val/CrossEntropyLoss", {Quantity::kEvalLoss, 2}},
    {"eval/avg_loss", {Quantity::kEvalLoss, 2}},
    {"grad_norm", {Quantity::kGradNorm, 0}},
    {"grad norm", {Quantity::kGradNorm, 0}},
    {"grad-norm", {Quantity::kGradNorm, 0}},
    {"train/grad_norm", {Quantity::kGradNorm, 1}},
    {"gradient_norm", {Quantity::kGradNorm, 1}},
    {"total_grad_norm", {Quantity::kGradNorm, 2}},
    {"global_grad_norm", {Quantity::kGradNorm, 2}},
    {"total_norm", {Quantity::kGradNorm, 2}},
    {"gnorm", {Quantity::kGradNorm, 2}},
    {"norm", {Quantity::kGradNorm, 2}},
    {"lr", {Quantity::kLearningRate, 0}},
    {"learning rate", {Quantity::kLearningRate, 0}},
    {"learning_rate", {Quantity::kLearningRate, 0}},
    {"learning-rate", {Quantity::kLearningRate, 0}},
    {"train/learning_rate", {Quantity::kLearningRate, 1}},
    {"train/lr", {Quantity::kLearningRate, 1}},
    {"lr-AdamW", {Quantity::kLearningRate, 1}},
    {"consumed tokens", {Quantity::kTokensSeen, 0}},
    {"tokens_seen", {Quantity::kTokensSeen, 0}},
    {"n_tokens_seen", {Quantity::kTokensSeen, 0}},
    {"ntokens_seen", {Quantity::kTokensSeen, 0}},
    {"num_tokens", {Quantity::kTokensSeen, 1}},
    {"total_tokens", {Quantity::kTokensSeen, 1}},
    {"throughput/total_tokens", {Quantity::kTokensSeen, 1}},
    {"throughput/total tokens", {Quantity::kTokensSeen, 1}},
    {"num_input_tokens_seen", {Quantity::kTokensSeen, 1}},
    {"tps", {Quantity::kTokensPerSecond, 0}},
    {"throughput(tps)", {Quantity::kTokensPerSecond, 0}},
    {"tokens_per_second", {Quantity::kTokensPerSecond, 0}},
    {"step_seconds", {Quantity::kStepSeconds, 0}},
};

/// A norm over all parameters has only words of this list; that of a module has
/// the module's name.
constexpr std::string_view kWordsOfWhole[] = {
    "grad",   "grads",    "gradient", "gradients", "g",     "norm",
    "norms",  "gradnorm", "gnorm",    "l",         "total", "global",
    "all",    "overall",  "train",    "training",  "optim", "optimizer",
    "opt",    "actor",    "critic",   "learning",  "clip",  "clipped",
    "pre",    "post",     "before",   "after",     "raw",   "unclipped",
    "charts", "clipping", "metrics",  "step",      "model", "policy"};

/// A norm with one of these words needs no word "gradient".
constexpr std::string_view kWordsOfOptimizers[] = {
    "total", "optim", "optimizer", "opt", "actor", "train", "training"};

/// A name with one of these words is no learning rate.
constexpr std::string_view kWordsOfOthers[] = {
    "warmup", "min",   "max",     "ratio",    "decay", "mult",  "multiplier",
    "factor", "scale", "scaling", "end",      "final", "vs",    "steps",
    "epoch",  "loss",  "time",    "patience", "gamma", "target"};

/// A rate with one of these words is a setting, which the run need not follow.
constexpr std::string_view kWordsOfSettings[] = {"base", "init", "initial",
                                                 "peak"};

/// A loss of a run has only words of this list; a part of it has others, such
/// as "aux" or the name of a head.
constexpr std::string_view kWordsOfLoss[] = {
    "loss",  "losses", "train",   "training", "avg",   "average",  "mean",
    "total", "lm",     "ce",      "xent",     "cross", "entropy",  "step",
    "iter",  "batch",  "global",  "reduced",  "model", "language", "nll",
    "gpt",   "closs",  "metrics", "token",    "mlm",   "overall",  "running"};

/// Finds losses by words.
KnownName LossByWords(const std::vector<std::string>& words) {
  bool loss = false;
  bool cross_entropy = false;
  bool evaluates = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool of_evaluation = IsEvaluationWord(words[i]);
    if (!of_evaluation && words[i] != "epoch" &&
        std::ranges::count(kWordsOfLoss, words[i]) == 0) {
      return {};
    }
    evaluates |= of_evaluation;
    loss |= words[i] == "loss" || words[i] == "closs" || words[i] == "xent";
    if (words[i] == "entropy") {
      // That of a policy is no loss of its own: "entropy_loss".
      if (i == 0 || words[i - 1] != "cross") return {};
      cross_entropy = true;
    }
  }
  const bool epoch = std::ranges::count(words, "epoch") != 0;
  if (!(loss || cross_entropy) || (epoch && !evaluates)) return {};
  return {evaluates ? Quantity::kEvalLoss : Quantity::kLoss,
          kRankByWords + static_cast<int>(words.size())};
}

/// Finds losses, rates and gradient norms by words. A rate has the word "lr" or
/// "learning rate"; a norm has "norm" and a word of a gradient or optimizer.
KnownName NameByWords(std::string_view name) {
  constexpr size_t kLongest = 80;
  constexpr int kSetting = 64;
  // Most names of a wide table have none of these letters; they cost no memory.
  constexpr std::string_view kHints[] = {"lr",   "LR",  "earning", "norm",
                                         "Norm", "oss", "ntropy",  "xent"};
  const bool hinted =
      std::ranges::any_of(kHints, [name](std::string_view hint) {
        return name.find(hint) != std::string_view::npos;
      });
  if (name.size() > kLongest || !hinted) return {};
  std::vector<std::string> words;
  for (Word& word : WordsOf(name)) words.push_back(std::move(word.letters));
  const KnownName by_loss = LossByWords(words);
  if (by_loss.quantity != Quantity::kOther) return by_loss;
  const auto has = [&](std::string_view word) {
    return std::ranges::count(words, word) != 0;
  };
  const auto is_any = [](std::span<const std::string_view> known) {
    return [known](std::string_view word) {
      return std::ranges::count(known, word) != 0;
    };
  };
  const int rank = kRankByWords + static_cast<int>(words.size());
  constexpr std::string_view kLearningRate[] = {"learning", "rate"};
  if ((has("lr") || !std::ranges::search(words, kLearningRate).empty()) &&
      std::ranges::none_of(words, is_any(kWordsOfOthers))) {
    const bool setting = std::ranges::any_of(words, is_any(kWordsOfSettings));
    return {Quantity::kLearningRate, rank + (setting ? kSetting : 0)};
  }
  const bool of_gradient = has("grad") || has("grads") || has("gradient") ||
                           has("gradients") || has("g");
  const bool of_optimizer =
      std::ranges::any_of(words, is_any(kWordsOfOptimizers));
  const bool is_norm = has("gradnorm") || has("gnorm") ||
                       (has("norm") && (of_gradient || of_optimizer));
  const bool of_group = name.back() >= '0' && name.back() <= '9';
  if (!is_norm || of_group ||
      !std::ranges::all_of(words, is_any(kWordsOfWhole))) {
    return {};
  }
  return {Quantity::kGradNorm, rank};
}

}  // namespace

KnownName FindName(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &Named<KnownName>::name);
  return found == std::end(kNames) ? NameByWords(name) : found->value;
}

}  // namespace isoloss::foreign

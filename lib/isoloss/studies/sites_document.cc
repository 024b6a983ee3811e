// Writes a study of sites as text, JSON and a picture.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/studies/documents.h"
#include "isoloss/studies/study.h"

namespace isoloss::studies {
namespace {

using document::Document;
using document::PictureMark;
using document::PicturePanel;
using estimators::ProductFinding;
using estimators::SetFinding;
using estimators::SiteFindings;
using estimators::SiteProduct;
using estimators::SitesStatement;

constexpr double kMilli = 1e3;
constexpr double kNano = 1e9;

std::string PercentText(const SitesStatement& statement, double nats) {
  if (!std::isfinite(nats)) return "none";
  return fmt::format("{:+.3f}", statement.Percent(nats));
}

constexpr int kPercentColumn = 7;

/// Returns "+0.012 [-0.030, +0.054]" in percent of the baseline's loss, with
/// each number in `width` columns.
std::string PercentInterval(const SitesStatement& statement,
                            const stats::MeanInterval& interval,
                            int width = 0) {
  return fmt::format("{:>{}} [{:>{}}, {:>{}}]",
                     PercentText(statement, interval.mean), width,
                     PercentText(statement, interval.lower), width,
                     PercentText(statement, interval.upper), width);
}

std::string GradientText(const std::optional<double>& error) {
  return error && std::isfinite(*error) ? fmt::format("{:.2g}", *error) : "-";
}

std::string GrowthText(const SiteProduct& product) {
  if (!product.first_error || !product.last_error) return "-";
  const double growth = *product.last_error / *product.first_error;
  return std::isfinite(growth) ? fmt::format("{:.2f}", growth) : "-";
}

std::string RankingRow(const SitesStatement& statement,
                       const ProductFinding& finding) {
  const SiteProduct& product = statement.products[finding.product];
  std::string row = fmt::format(
      "{:<26}",
      product.Name() + (finding.adjusted < estimators::kHarmful ? " *" : ""));
  row += finding.unstable
             ? fmt::format("{:>26}", "no finite loss")
             : fmt::format("{:>26}", PercentInterval(statement, finding.harm,
                                                     kPercentColumn));
  row += fmt::format(" {:>7} {:>7} {:>6.2g} {:>8} {:>6}",
                     PercentText(statement, finding.only.mean),
                     PercentText(statement, finding.all_but.mean),
                     finding.adjusted, GradientText(product.first_error),
                     GrowthText(product));
  for (const estimators::ModelShare& share : product.shares) {
    row += fmt::format(" {:>5.1f}/{:<4.1f}", 100 * share.flops,
                       100 * share.bytes_saved);
  }
  return row + fmt::format(" {:>8.2f}", kNano * product.saved_seconds);
}

void PutNats(const char* key, const stats::MeanInterval& interval,
             Document& document) {
  document.PutInterval(key, interval.mean, interval.lower, interval.upper);
}

Document ProductDocument(const SitesStatement& statement,
                         const ProductFinding& finding) {
  const SiteProduct& product = statement.products[finding.product];
  Document document;
  document.Put("site", product.kind);
  document.Put("role", estimators::kProductRoleNames.at(product.role));
  document.Put("unstable", finding.unstable);
  PutNats("harm_nats", finding.harm, document);
  PutNats("alone_nats", finding.only, document);
  PutNats("left_out_nats", finding.all_but, document);
  document.Put("p", finding.p);
  document.Put("p_adjusted", finding.adjusted);
  document.Put("gradient_error_first", product.first_error);
  document.Put("gradient_error_last", product.last_error);
  document.PutEach("shares", product.shares,
                   [](const estimators::ModelShare& share) {
                     Document of_model;
                     of_model.Put("model", share.model);
                     of_model.Put("flops", share.flops);
                     of_model.Put("bytes_saved", share.bytes_saved);
                     return of_model;
                   });
  document.Put("saved_seconds_of_a_token", product.saved_seconds);
  document.Say(RankingRow(statement, finding));
  return document;
}

/// Puts the table of products, and explains its columns.
void PutRanking(const SitesStatement& statement, Document& document) {
  std::string head = fmt::format("{:<26}{:>26} {:>7} {:>7} {:>6} {:>8} {:>6}",
                                 "product", "harm % [95 %]", "alone %",
                                 "left %", "p adj.", "gradient", "growth");
  if (!statement.products.empty()) {
    for (const auto& share : statement.products.front().shares) {
      head += fmt::format(" {:>10}", share.model);
    }
  }
  document.Say(head + fmt::format(" {:>8}", "ns saved"));
  document.PutEach("products", statement.findings.ranked,
                   [&](const ProductFinding& finding) {
                     return ProductDocument(statement, finding);
                   });
  document.Say(fmt::format(
      "harm: what the product adds to the loss, by an additive model of all "
      "arms; alone: loss with it alone - {}; left: loss of all - loss of all "
      "but it. Percent of the baseline's loss.",
      statement.baseline));
  document.Say(fmt::format(
      "*: above 0 with p < {:g}, adjusted for {} products (Benjamini and "
      "Hochberg). Each interval holds with 95 % on its own.",
      estimators::kHarmful, statement.products.size()));
  document.Say(fmt::format(
      "gradient: relative error of the whole gradient with the product alone "
      "at step 1; growth: at step {} over that of step 1.",
      statement.steps));
  document.Say(fmt::format(
      "Then its share of a model's operations / share of all operand bytes "
      "that it saves, percent; and what it saves of a token of {}.",
      statement.speed.work().name));
}

Document TryDocument(const estimators::SpeedTry& tried) {
  Document document;
  document.Put("run", tried.run.name);
  document.Put("fitted", tried.fitted);
  document.Put("published_tokens_per_second", tried.run.tokens_per_second);
  document.Put("predicted_tokens_per_second", tried.predicted);
  document.Put("predicted_if_experts_share_a_rank", tried.predicted_one_rank);
  const double error = tried.predicted / tried.run.tokens_per_second - 1;
  document.Say(
      fmt::format("{:<24} published {:>4.0f} tokens/s, model {:>4.0f}{}",
                  tried.run.name, tried.run.tokens_per_second, tried.predicted,
                  tried.fitted
                      ? ": the rest is fitted to it"
                      : fmt::format(" ({:+.1f} %; {:.0f} if a token's experts "
                                    "share a rank)",
                                    100 * error, tried.predicted_one_rank)),
      2);
  return document;
}

Document SpeedDocument(const estimators::SpeedModel& speed) {
  using estimators::Dispatch;
  const double standard = speed.ExchangeSeconds(Dispatch::kStandard);
  const double deepep = speed.ExchangeSeconds(Dispatch::kDeepep);
  Document document;
  document.Say("");
  document.Say(fmt::format(
      "Speed model of {} on {}, milliseconds of a token on one GPU: products "
      "{:.3f}, exchange {:.3f} (DeepEP {:.3f}), rest {:.3f}.",
      speed.work().name, speed.hardware().name, kMilli * speed.GemmSeconds(),
      kMilli * standard, kMilli * deepep, kMilli * speed.RestSeconds()));
  document.Put("model", speed.work().name);
  document.Put("hardware", speed.hardware().name);
  document.Put("gemm_share_of_peak", speed.assumptions().gemm_share);
  document.Put("cast_share_of_memory_rate", speed.assumptions().memory_share);
  document.Put("gemm_seconds", speed.GemmSeconds());
  document.Put("exchange_seconds_standard", standard);
  document.Put("exchange_seconds_deepep", deepep);
  document.Put("rest_seconds", speed.RestSeconds());
  document.PutEach("tries", speed.Tries(), TryDocument);
  return document;
}

/// Returns a row of the sets, or of the frontier.
Document SetDocument(const SitesStatement& statement,
                     const SetFinding& finding) {
  std::vector<std::string> products;
  for (const size_t product : finding.set.products) {
    products.push_back(statement.products[product].Name());
  }
  Document document;
  document.Put("name", finding.set.name);
  document.Put("source", finding.set.source);
  document.Put("products", products);
  document.Put("speed_up", finding.speed_up);
  PutNats("predicted_nats", finding.predicted, document);
  if (finding.measured) {
    PutNats("measured_nats", *finding.measured, document);
    PutNats("measured_minus_predicted_nats", *finding.difference, document);
    document.Put("inside", finding.inside());
  } else {
    for (const char* key :
         {"measured_nats", "measured_minus_predicted_nats", "inside"}) {
      document.Put(key, {});
    }
  }
  return document;
}

Document SetRow(const SitesStatement& statement, const SetFinding& finding) {
  Document document = SetDocument(statement, finding);
  std::string row = fmt::format(
      "{:<28} {:>3} products {:>7.4f}x  predicted {}", finding.set.name,
      finding.set.products.size(), finding.speed_up,
      PercentInterval(statement, finding.predicted, kPercentColumn));
  if (finding.measured) {
    row += "  measured " +
           PercentInterval(statement, *finding.measured, kPercentColumn);
  }
  document.Say(row, 2);
  return document;
}

std::string SitesCheck(const SitesStatement& statement,
                       const SetFinding& recipe) {
  if (!recipe.measured) return "";
  if (!std::isfinite(recipe.measured->mean)) {
    return "Trained, a run of it did not end with a finite loss.";
  }
  const stats::MeanInterval& difference = *recipe.difference;
  const double reach = (difference.upper - difference.lower) / 2;
  return fmt::format(
      "Trained with seeds that did not choose it, it has the gap {} %, {}. "
      "Measured - predicted: {} %: {} the interval. The seeds tell differences "
      "of about {:.3f} %.",
      PercentInterval(statement, *recipe.measured),
      recipe.safe(statement.findings.margin_nats)
          ? "below the margin with its upper end"
          : "which is not shown to be below the margin",
      PercentInterval(statement, difference),
      recipe.inside() ? "0 is inside" : "0 is outside",
      statement.Percent(reach));
}

/// Puts the chosen recipe and the result of its runs.
void PutRecipe(const SitesStatement& statement, Document& document) {
  document.Say("");
  if (!statement.findings.recipe) {
    document.Put("recipe", {});
    document.Say(fmt::format(
        "No set of products that makes a step faster has a predicted gap whose "
        "upper end lies below {:g} %, so there is no recipe.",
        statement.margin_percent));
    return;
  }
  const SetFinding& recipe = *statement.findings.recipe;
  document.PutObject("recipe", SetDocument(statement, recipe));
  document.Say(fmt::format(
      "Recipe ({}): {} of {} products, {:.4f} times as fast, predicted gap {} "
      "%, below {:g} % with its upper end.",
      recipe.set.name, recipe.set.products.size(), statement.products.size(),
      recipe.speed_up, PercentInterval(statement, recipe.predicted),
      statement.margin_percent));
  const std::string check = SitesCheck(statement, recipe);
  if (!check.empty()) document.Say(check);
}

/// Puts the question and the trained runs.
void PutQuestion(const SitesStatement& statement, Document& document) {
  const SiteFindings& findings = statement.findings;
  document.Put("schema_version", 1);
  document.Put("experiment", statement.experiment);
  document.Put("baseline", statement.baseline);
  document.Put("arm", statement.arm);
  document.Put("candidate", statement.candidate);
  document.Put("steps", statement.steps);
  document.Put("seeds", findings.seeds);
  document.Put("confidence", 1 - 2 * estimators::kSiteAlpha);
  document.Put("runs", statement.runs);
  document.Put("baseline_loss_nats", findings.baseline_loss);
  document.Put("margin_percent", statement.margin_percent);
  document.Put("margin_nats", findings.margin_nats);
  document.Say(fmt::format(
      "Sites of arm {} ({}) against {}: {} products, {} seeds of {} steps, {} "
      "runs; the baseline ends at {:.4f} nats.",
      statement.arm, statement.candidate, statement.baseline,
      statement.products.size(), findings.seeds, statement.steps,
      statement.runs, findings.baseline_loss));
}

}  // namespace

Document SitesDocument(const SitesStatement& statement) {
  const SiteFindings& findings = statement.findings;
  Document document;
  PutQuestion(statement, document);
  document.Say("");
  PutRanking(statement, document);
  document.PutObject("speed_model", SpeedDocument(statement.speed));
  const auto row = [&](const SetFinding& set) {
    return SetRow(statement, set);
  };
  document.Say("");
  document.Say(
      "Sets, which fit nothing but \"every product\"; gap in percent:");
  document.PutEach("sets", findings.sets, row);
  document.Say("");
  document.Say(
      "Frontier: products whose harm is not told apart from 0 by descending "
      "time that they save, then the others by ascending harm for it");
  document.PutEach("frontier", findings.frontier, row);
  PutRecipe(statement, document);
  std::vector<std::string> notes = findings.notes;
  notes.insert(notes.end(), statement.notes.begin(), statement.notes.end());
  document.Put("notes", notes);
  SayNotes(notes, document);
  return document;
}

namespace {

/// Adds a set to the picture. A measured set is a dot with its interval; a
/// predicted set is a ring, unless it is infinite. The name stands above both.
void AddSet(const SitesStatement& statement, const SetFinding& set,
            const std::string& name, std::string_view colour,
            PicturePanel& panel) {
  const double predicted = statement.Percent(set.predicted.mean);
  double top = predicted;
  panel.marks.push_back({.x = set.speed_up,
                         .y = predicted,
                         .colour = colour,
                         .sign = PictureMark::Sign::kRing,
                         .radius = 4});
  if (set.measured) {
    const double upper = statement.Percent(set.measured->upper);
    panel.marks.push_back(
        {.x = set.speed_up,
         .y = statement.Percent(set.measured->mean),
         .interval = std::pair(statement.Percent(set.measured->lower), upper),
         .colour = colour});
    top = std::isfinite(predicted) ? std::max(top, upper) : upper;
  }
  panel.labels.push_back(
      {.x = set.speed_up, .y = top, .text = name, .colour = colour});
}

/// Draws the predicted frontier, the sets by their numbers, and the recipe.
PicturePanel FrontierPanel(const SitesStatement& statement) {
  namespace colour = document::colour;
  const auto plain = [](double tick) { return fmt::format("{:.4g}", tick); };
  PicturePanel panel{
      .x = {.widen = 0.04,
            .label = plain,
            .title = fmt::format("times as fast as BF16 + DeepEP, {} on {}, by "
                                 "the speed model",
                                 statement.speed.work().name,
                                 statement.speed.hardware().name)},
      .y = {.holds = {1.2 * statement.margin_percent, 0},
            .widen = 0.05,
            .spacing = 32},
      .rules = {{.at = statement.margin_percent}},
      .bands = {{.edges = {}, .colour = colour::kBlue}},
      .paths = {{.points = {}, .colour = colour::kBlue}},
      .height = 430};
  for (const SetFinding& step : statement.findings.frontier) {
    const double mean = statement.Percent(step.predicted.mean);
    panel.bands[0].edges.push_back({step.speed_up,
                                    statement.Percent(step.predicted.lower),
                                    statement.Percent(step.predicted.upper)});
    panel.paths[0].points.push_back({step.speed_up, mean});
    panel.marks.push_back(
        {.x = step.speed_up, .y = mean, .colour = colour::kBlue, .radius = 2});
  }
  int number = 0;
  for (const SetFinding& set : statement.findings.sets) {
    AddSet(statement, set, fmt::format("{}", ++number), colour::kOrange, panel);
  }
  if (statement.findings.recipe) {
    AddSet(statement, *statement.findings.recipe, "R", colour::kGreen, panel);
  }
  return panel;
}

document::PictureForest RankingForest(const SitesStatement& statement) {
  namespace colour = document::colour;
  document::PictureForest forest{.rows = {}, .zero = true};
  for (const ProductFinding& finding : statement.findings.ranked) {
    const bool harmful = finding.adjusted < estimators::kHarmful;
    forest.rows.push_back(
        {.label = statement.products[finding.product].Name(),
         .colour = harmful ? colour::kRed : colour::kGrey,
         .lower = statement.Percent(finding.harm.lower),
         .upper = statement.Percent(finding.harm.upper),
         .dot = statement.Percent(finding.harm.mean),
         .instead = finding.unstable ? "no finite loss" : ""});
  }
  return forest;
}

}  // namespace

document::Picture SitesPicture(const SitesStatement& statement) {
  namespace colour = document::colour;
  document::PictureKeys sets;
  for (const SetFinding& set : statement.findings.sets) {
    sets.keys.push_back({colour::kOrange, set.set.name,
                         fmt::format("{}", sets.keys.size() + 1)});
  }
  return {
      .title = fmt::format("{}: gap to {} in % of the loss against speed-up, "
                           "95 % intervals",
                           statement.candidate, statement.baseline),
      .parts = {
          document::PictureKeys{
              {{colour::kBlue, "predicted frontier"},
               {colour::kOrange,
                "sets: trained (dot), predicted (ring, if finite)"},
               {colour::kGreen, "recipe", "R"},
               {colour::kRed,
                fmt::format("margin {:g} %", statement.margin_percent), "--"}}},
          FrontierPanel(statement), std::move(sets),
          document::PictureText{
              fmt::format("Harm of each product, % of the loss, 95 % "
                          "intervals; red: above 0 with adjusted p < {:g}",
                          estimators::kHarmful),
              "font-weight=\"bold\""},
          RankingForest(statement)}};
}

}  // namespace isoloss::studies

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/document/document.h"
#include "isoloss/document/json.h"
#include "isoloss/document/text.h"

namespace isoloss::document::renderers_test {
namespace {

struct Rung {
  std::string name;
  double gap = 0;
};

Document RungDocument(const Rung& rung) {
  Document document;
  document.Put("name", rung.name);
  document.Put("gap_nats", rung.gap);
  document.Say(rung.name + " is trained", 2);
  return document;
}

Document Sample() {
  Document document;
  document.Add(Title{"Gaps"});
  document.Put("seeds", std::vector<int64_t>{1, 2});
  document.AddField("seeds", "1, 2");
  document.Put("slope", std::optional<double>());
  document.PutInterval("gap", 0.5, 0.25, INFINITY);
  document.PutEach("rungs", std::vector<Rung>{{"d16", 1}, {"d32", 2}},
                   RungDocument);
  document.PutEach("sizes", std::vector<Rung>(), RungDocument);
  document.Say("Two rungs.");
  return document;
}

TEST(Document, IsReadInItsOrder) {
  EXPECT_EQ(RenderText(Sample()),
            "Gaps\n  seeds      1, 2\n  d16 is trained\n  d32 is trained\n"
            "Two rungs.\n");
}

TEST(Document, HasOneMemberOfEachKey) {
  const Json json = ToJson(Sample());
  EXPECT_EQ(json.dump(),
            R"({"seeds":[1,2],"slope":null,"gap":{"estimate":0.5,)"
            R"("lower":0.25,"upper":null,"upper_text":"inf"},"rungs":)"
            R"([{"name":"d16","gap_nats":1.0},{"name":"d32","gap_nats":2.0}],)"
            R"("sizes":[]})");
}

TEST(Document, KeepsTypesOfValues) {
  Document document;
  document.Put("flag", true);
  document.Put("count", size_t{3});
  document.Put("text", "three");
  document.Put("real", 3.0F);
  document.Put("none", Value());
  document.Put("list", std::vector<double>{1, NAN});
  EXPECT_EQ(ToJson(document).dump(),
            R"({"flag":true,"count":3,"text":"three","real":3.0,"none":null,)"
            R"("list":[1.0,null]})");
}

TEST(Document, ReplacesBytesThatAreNoText) {
  Document document;
  document.Put("file", "a\xFFz");
  EXPECT_EQ(RenderJson(document), "{\n  \"file\": \"a\xEF\xBF\xBDz\"\n}\n");
}

Table SampleTable() {
  Table table{.key = "cases",
              .columns = {{.key = "case", .label = "case", .is_text = true},
                          {.key = "error", .label = "error", .format = ".2f"},
                          {.key = "worst", .label = "worst", .is_text = true}},
              .indent = 2,
              .gap = 2};
  Document forward;
  forward.Put("case", "forward");
  forward.Put("error", 1.0 / 3);
  forward.PutObject("worst", RungDocument({"d16", 1}));
  forward.AddField("worst", "d16 at step 3");
  Document backward;
  backward.Put("case", "backward");
  backward.Put("error", std::optional<double>());
  backward.Put("worst", Value());
  table.rows = {forward, backward};
  return table;
}

TEST(Table, HasAlignedColumns) {
  Document document;
  document.Add(SampleTable());
  EXPECT_EQ(RenderText(document),
            "  case      error  worst\n"
            "  forward    0.33  d16 at step 3\n"
            "  backward      -  -\n");
}

TEST(Table, IsAListOfItsRows) {
  Document document;
  document.Add(SampleTable());
  const Json cases = ToJson(document)["cases"];
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_DOUBLE_EQ(cases[0]["error"].get<double>(), 1.0 / 3);
  EXPECT_EQ(cases[0]["worst"]["name"], "d16");
  EXPECT_TRUE(cases[1]["error"].is_null());
}

TEST(Table, OfPeopleAloneIsNoMember) {
  Table table = SampleTable();
  table.key.clear();
  Document document;
  document.Add(table);
  EXPECT_EQ(ToJson(document).dump(), "{}");
}

TEST(Text, BreaksLinesThatHang) {
  Document document;
  document.Add(Line{.text = "one two three four five six",
                    .indent = 2,
                    .hang = 4,
                    .lead = "warning: "});
  EXPECT_EQ(RenderText(document, TextStyle{.width = 24}),
            "  warning: one two three\n    four five six\n");
}

TEST(Text, PaintsTonesWhereColoursShow) {
  Document document;
  document.Add(Line{.text = "  done", .lead = "PASS", .tone = Tone::kGood});
  EXPECT_EQ(RenderText(document, TextStyle{.color = true}),
            "\x1b[32mPASS\x1b[0m  done\n");
  EXPECT_EQ(RenderText(document), "PASS  done\n");
}

TEST(Text, SaysThatAChartHasNothingToDraw) {
  Document document;
  Chart chart;
  chart.step = {1};
  chart.curves = {{{NAN}, false}};
  document.Add(chart);
  EXPECT_EQ(RenderText(document), "  no finite value to draw\n");
}

}  // namespace
}  // namespace isoloss::document::renderers_test

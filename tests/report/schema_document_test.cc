#include "isoloss/report/schema_document.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::report::schema_document_test {
namespace {

using document::Json;
using document::TextStyle;

using runlog::Field;
using testing::HasSubstr;
using testing::StartsWith;

std::string SchemaText(const TextStyle& style) {
  return document::RenderText(SchemaDocument(), style);
}

Json SchemaJson() { return document::ToJson(SchemaDocument()); }

/// A field of the layout and the names of its axes besides the rows.
struct Place {
  std::string group;
  Field field;
  std::string axes = {};
};

struct Fields {
  std::vector<Place> places;
  std::vector<std::pair<std::string, std::string>> groups;
};

Fields AllFields() {
  Fields fields;
  for (const runlog::Group& group : runlog::SchemaOf<runlog::RunLog>()) {
    if (!group.IsFile()) {
      fields.groups.emplace_back(group.name, group.description);
    }
    for (const runlog::Column& column : group.columns) {
      fields.places.push_back({group.name, column.field});
      for (const runlog::Axis& axis : column.axes) {
        fields.places.back().axes += axis.name;
      }
    }
  }
  return fields;
}

/// Letters of the axes in "float64 [rows, layers, experts]": "layersexperts".
std::string AxesOf(const std::string& type) {
  const size_t begin = type.find('[');
  if (begin == std::string::npos) return "";
  std::string axes;
  std::istringstream names(type.substr(begin + 1, type.find(']') - begin - 1));
  for (std::string name; std::getline(names >> std::ws, name, ',');) {
    if (name != "rows") axes += name;
  }
  return axes;
}

TEST(SchemaDocument, HasEveryFieldOfTheLayoutInItsOrder) {
  const Fields expected = AllFields();

  const Json schema = SchemaJson();

  size_t at = 0;
  size_t group_at = 0;
  for (const Json& group : schema["groups"]) {
    if (!group["name"].get<std::string>().empty()) {
      ASSERT_LT(group_at, expected.groups.size());
      EXPECT_EQ(group["name"], expected.groups[group_at].first);
      EXPECT_THAT(group["meaning"].get<std::string>(),
                  StartsWith(expected.groups[group_at].second));
      ++group_at;
    }
    for (const Json& dataset : group["datasets"]) {
      ASSERT_LT(at, expected.places.size());
      const Place& place = expected.places[at++];
      SCOPED_TRACE(fmt::format("/{}/{}", place.group, place.field.name));
      EXPECT_EQ(group["name"], place.group);
      EXPECT_EQ(dataset["name"], place.field.name);
      EXPECT_EQ(dataset["unit"], place.field.unit);
      EXPECT_EQ(dataset["values"], place.field.domain.Describe());
      EXPECT_EQ(AxesOf(dataset["type"]), place.axes);
      const std::string meaning = dataset["meaning"];
      EXPECT_THAT(meaning, StartsWith(place.field.description));
      if (place.field.when != runlog::When::kAlways) {
        EXPECT_THAT(meaning, HasSubstr("; only "));
      }
      if (place.field.since > 1) {
        EXPECT_THAT(meaning, HasSubstr(fmt::format("(from version {})",
                                                   place.field.since)));
      }
    }
  }
  EXPECT_EQ(at, expected.places.size());
  EXPECT_EQ(group_at, expected.groups.size());
}

TEST(SchemaDocument, ShowsInWordsWhatTheJsonHolds) {
  std::string words;
  std::istringstream text(SchemaText(TextStyle{}));
  for (std::string word; text >> word;) words += " " + word;

  for (const Json& group : SchemaJson()["groups"]) {
    EXPECT_THAT(words, HasSubstr(group["meaning"]));
    for (const Json& dataset : group["datasets"]) {
      const std::string unit = dataset["unit"];
      const std::string values = dataset["values"];
      std::string expected = fmt::format(
          " {} {}{} {}", dataset["name"].get<std::string>(),
          dataset["type"].get<std::string>(), unit.empty() ? "" : " " + unit,
          dataset["meaning"].get<std::string>());
      if (!values.empty()) expected += " values: " + values;
      EXPECT_THAT(words, HasSubstr(expected));
    }
  }
}

TEST(SchemaDocument, HasATypeForEveryField) {
  for (const Json& group : SchemaJson()["groups"]) {
    for (const Json& dataset : group["datasets"]) {
      EXPECT_THAT(
          dataset["type"].get<std::string>(),
          testing::MatchesRegex("(int32|int64|float64|bool|UTF-8 string).*"));
    }
  }
}

}  // namespace
}  // namespace isoloss::report::schema_document_test

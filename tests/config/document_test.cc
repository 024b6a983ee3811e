#include "isoloss/config/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "isoloss/base/error.h"

namespace isoloss::config::document_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string Dots(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += ".a";
  return text;
}

/// "" or the error, with its line.
std::string ErrorOf(const std::string& text) {
  try {
    Document(text, "file", "Remedy.");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(Document, TakesWhatIsTomlAndNoKey) {
  const std::string dots = "." + Dots(100);
  for (const std::string& text :
       {"x = 1.5 # " + dots, "x = \"" + dots + "\"", "x = '" + dots + "'",
        "x = \"\"\"\n" + dots + "\n\"\"\"", "x = '''" + dots + "'''",
        "x = \"\\\"" + dots + "\"", std::string("a.b.c = [1.0, 2.0]"),
        "a" + Dots(kMaxKeyParts - 1) + " = 1",
        std::string("x = [1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 0.5, "
                    "1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]")}) {
    EXPECT_EQ(ErrorOf(text), "") << text;
  }
}

TEST(Document, RefusesDeepKeysWhereverTheyStand) {
  const std::string deep = "a" + Dots(kMaxKeyParts);
  for (const std::string& text :
       {deep + " = 1", "[" + deep + "]", "[[" + deep + "]]",
        "x = {" + deep + " = 1}", "\"a\"" + Dots(kMaxKeyParts) + " = 1",
        "x = {y = \"\"\"a\"\"\"\", " + deep + " = 1}",
        "x = {y = '''a''''', " + deep + " = 1}",
        "x = {y = \"\\\\\", " + deep + " = 1}",
        "x = {y = '\\', " + deep + " = 1}",
        "x = {y = \"#\", " + deep + " = 1}"}) {
    EXPECT_THAT(ErrorOf(text),
                HasSubstr("file:1:1: A key has more than 16 parts"))
        << text;
  }
  EXPECT_THAT(ErrorOf("x = \"\"\"\n\n\"\"\"\ny = 1\n" + deep + " = 1"),
              HasSubstr("file:5:1: A key has more than 16 parts"));
  EXPECT_THAT(ErrorOf("x = 1\ny = "),
              AllOf(HasSubstr("file:2:"), EndsWith(". Remedy.")));
}

TEST(Document, RefusesWhatTheParserWouldDescendInto) {
  const std::string deep = "a" + Dots(40'000);
  EXPECT_NE(ErrorOf(deep + " = 1"), "");
  // Deep values of deep keys: both limits together.
  std::string nested;
  for (int i = 0; i < 300; ++i) nested += "{a" + Dots(kMaxKeyParts - 1) + " = ";
  EXPECT_NE(ErrorOf("x = " + nested + "1"), "");
  EXPECT_THAT(ErrorOf(std::string(kMaxTomlBytes + 1, '#')),
              HasSubstr("more than 4 MiB, but that of a TOML file has at most "
                        "4 MiB"));
}

TEST(Document, TakesAsDeepATreeAsItsTwoLimitsAllow) {
  std::string nested = "1";
  for (int i = 0; i < 200; ++i) {
    nested = "{a" + Dots(kMaxKeyParts - 1) + " = " + nested + "}";
  }
  EXPECT_EQ(ErrorOf("x = " + nested), "");
}

std::vector<std::string> KeysOf(const Table& table) {
  std::vector<std::string> keys;
  for (const Entry& entry : table.entries) keys.push_back(entry.key);
  return keys;
}

TEST(Document, KeysStandInTheOrderOfTheFileAndOfOverrides) {
  Document document("z = 1\nb.y = 2\na = 3\nb.x = 4\n", "file");

  document.Override("y=5");
  document.Override("z=6");
  document.Override("c.d=7");

  EXPECT_THAT(KeysOf(document.root()), ElementsAre("z", "b", "a", "y", "c"));
  EXPECT_THAT(KeysOf(*document.root().Find("b")->node.As<Table>()),
              ElementsAre("y", "x"));
}

TEST(Document, DescribesWhereAValueStands) {
  Document document("a = 1\n\n  b = [2]\n", "folder/file");
  document.Override("c.d = 3");

  const auto place = [&](const char* key) {
    return document.Describe(document.root().Find(key)->node.place);
  };
  EXPECT_EQ(place("a"), "folder/file:1:5");
  EXPECT_EQ(place("b"), "folder/file:3:7");
  EXPECT_EQ(place("c"), "--set c.d = 3");
  EXPECT_EQ(document.Describe({}), "folder/file");
}

TEST(Shown, CutsLongValues) {
  EXPECT_EQ(Shown({std::string(61, 'a'), {}}),
            '"' + std::string(60, 'a') + "\"...");
  EXPECT_EQ(Shown({List(9, Node{int64_t{1}, {}}), {}}),
            "[1, 1, 1, 1, 1, 1, 1, 1, ...]");
  EXPECT_EQ(Shown({List(1, Node{List(), {}}), {}}), "[a list]");
  EXPECT_EQ(Shown({{}, {}}), "a date or time");
}

}  // namespace
}  // namespace isoloss::config::document_test

// Input for the compiler: templates of the library, instantiated.
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

int count(const std::string& text) {
  std::unordered_map<std::string, std::map<int, std::vector<std::string>>> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    words[word][static_cast<int>(word.size())].push_back(word);
  }
  std::function<int(int)> twice = [](int number) { return 2 * number; };
  return twice(static_cast<int>(words.size()));
}

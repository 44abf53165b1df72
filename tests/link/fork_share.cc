// A program's own word on forks: its children share its heap.
extern "C" const char* const bedplate_fork = "share";

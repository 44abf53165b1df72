// What a program defines that links the pool's malloc and is not to have it unless told otherwise.
extern "C" const char* const bedplate_leave_pinned;
extern "C" const char* const bedplate_leave_pinned = "no";
